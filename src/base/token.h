// The job's token, which every port asks for.
#pragma once

#include <string_view>

namespace locum {

// Whether two tokens are equal, in a time that depends on their lengths alone, so that nobody can guess one byte by
// byte.
inline bool SameToken(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ = static_cast<unsigned char>(differ | (a[i] ^ b[i]));
  return differ == 0;
}

}  // namespace locum
