#pragma once

#include <string>
#include <string_view>

namespace mutations {

// A DEFLATE stream of `bytes`, in one block of fixed codes with the first match that is found for each place: not well
// compressed, but repetitions shrink as they do with any compressor.
std::string deflate(std::string_view bytes);

}  // namespace mutations
