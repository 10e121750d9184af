// Links several PTX modules into one.
#pragma once

#include <string>
#include <vector>

namespace sim {

// Joins the texts. A definition replaces other texts' declarations, the first definition of a weak
// symbol wins, and symbols local to a text get new names. Sections with debugging information are
// dropped.
//
// Returns false, with the reason in `why`, when two texts define one symbol.
bool link_ptx(const std::vector<std::string> &texts, std::string &linked, std::string &why);

} // namespace sim
