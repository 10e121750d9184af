// Makes one PTX module of several, as a linker does of their machine code.
#pragma once

#include <string>
#include <vector>

namespace sim {

// Joins the texts: a declaration gives way to another text's definition, the first definition of a
// weak symbol stands, and symbols local to a text get new names. Sections with debugging
// information are dropped.
//
// False with words in `why` when two texts define one symbol.
bool link_ptx(const std::vector<std::string> &texts, std::string &linked, std::string &why);

} // namespace sim
