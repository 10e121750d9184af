// Makes one PTX module of several, as a linker does of their machine code.
#pragma once

#include <string>
#include <vector>

namespace sim {

// The texts in one: declarations of what another text defines give way to the definition, the
// first definition of a weak symbol stands, and symbols that a text keeps to itself get names of
// their own. Sections with debugging information are dropped.
//
// False with words in `why` when two texts define one symbol.
bool link_ptx(const std::vector<std::string> &texts, std::string &linked, std::string &why);

} // namespace sim
