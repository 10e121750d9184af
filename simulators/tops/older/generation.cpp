// TopsRider 2.x, the generation of the published headers: libtopsrt.so.2.
#include "../generation.h"

namespace tops_sim {

int runtime_version() {
    return 2050;
}

bool wide_properties() {
    return false;
}

} // namespace tops_sim
