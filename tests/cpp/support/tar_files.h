#pragma once

// Tar archives for tests, as torch before 0.1.10 wrote them.

#include <string>
#include <string_view>

namespace tar_files {

inline std::string member(std::string_view name, std::string_view content) {
  std::string header(512, '\0');
  const auto set = [&](std::size_t at, std::string_view text) { header.replace(at, text.size(), text); };
  const auto octal = [](std::size_t n, std::size_t digits) {
    std::string text(digits, '0');
    for (std::size_t i = digits; i-- > 0; n /= 8) text[i] = static_cast<char>('0' + n % 8);
    return text;
  };
  set(0, name);
  set(100, "0000644");
  set(124, octal(content.size(), 11));
  set(136, "00000000000");
  set(148, "        ");
  set(156, "0");
  set(257, "ustar");
  set(263, "00");
  std::size_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  set(148, octal(sum, 6) + std::string(1, '\0') + " ");
  std::string out = header + std::string(content);
  out.resize((out.size() + 511) / 512 * 512, '\0');
  return out;
}

inline std::string torch_file(std::string_view pickle, std::string_view tensors, std::string_view storages) {
  return member("sys_info", "\x80\2}.") + member("pickle", pickle) + member("tensors", tensors) +
         member("storages", storages) + std::string(1024, '\0');
}

}  // namespace tar_files
