#include "worker/fingerprint.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "adapters/posix/owned_fd.h"
#include "base/ids.h"
#include "state/hash.h"

namespace locum {
namespace {

std::string HexBytes(const unsigned char* bytes, size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

// The loader calls it first for the executable, which is all that is wanted.
int FindBuildId(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
    const auto* end = at + segment.p_memsz;
    while (end - at >= static_cast<ptrdiff_t>(sizeof(ElfW(Nhdr)))) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto* name = at + sizeof note;
      const auto* content = name + (note.n_namesz + 3) / 4 * 4;
      if (content > end || note.n_descsz > static_cast<size_t>(end - content)) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        *static_cast<std::string*>(out) = HexBytes(content, note.n_descsz);
        return 1;
      }
      at = content + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

std::string HashExecutable() {
  OwnedFd fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return "unknown";
  std::vector<char> block(1u << 20);
  uint64_t hash = 0;
  while (true) {
    const ssize_t n = ::read(fd.get(), block.data() + sizeof hash, block.size() - sizeof hash);
    if (n <= 0) break;
    std::memcpy(block.data(), &hash, sizeof hash);
    hash = Hash64(block.data(), sizeof hash + static_cast<size_t>(n));
  }
  return "xxh3-" + ToHex(hash);
}

}  // namespace

std::string IsaLevel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt") || !__builtin_cpu_supports("ssse3")) {
    return "x86-64-v1";
  }
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
      !__builtin_cpu_supports("fma")) {
    return "x86-64-v2";
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return "x86-64-v3";
  }
  return "x86-64-v4";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "other";
#endif
}

std::string BuildId() {
  std::string id;
  ::dl_iterate_phdr(FindBuildId, &id);
  return id.empty() ? HashExecutable() : id;
}

Result<std::string> MakeFingerprint(const std::string& program) {
  std::string text = "isa=" + IsaLevel() + "\nbuild=" + BuildId() + "\n";
  for (size_t at = 0; at < program.size();) {
    size_t end = program.find('\n', at);
    if (end == std::string::npos) end = program.size();
    const std::string line = program.substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Invalid("fingerprint line '" + line.substr(0, 128) + "' is not of the form key=value");
    }
    const std::string key = line.substr(0, equals);
    if (key == "isa" || key == "build") return Invalid("fingerprint key '" + key + "' is the library's own; rename it");
    text += line + "\n";
  }
  if (text.size() > 65536) return Invalid("the fingerprint has more than 65536 bytes; hash what is long");
  return text;
}

}  // namespace locum
