// TopsRider 3.x: "TOPS Runtime 1.x", libtopsrt.so.1.
#include "../generation.h"

namespace tops_sim {

int runtime_version() {
    return 1090;
}

bool wide_properties() {
    return true;
}

} // namespace tops_sim
