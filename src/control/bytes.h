// Little-endian bytes for the control plane's messages: a writer, and a reader that never reads past the end.
// Internal to control and sim; plain values, one thread each.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace theseus::control {

class ByteWriter {
 public:
  void reserve(std::size_t bytes) { data_.reserve(bytes); }
  void u8(std::uint8_t value) { data_.push_back(static_cast<char>(value)); }
  void u16(std::uint16_t value) { put(value); }
  void u32(std::uint32_t value) { put(value); }
  void u64(std::uint64_t value) { put(value); }
  void f64(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void hash(const base::Hash128& value) {
    u64(value.high);
    u64(value.low);
  }
  void bytes(std::string_view value) { data_.append(value); }
  std::string take() { return std::move(data_); }

 private:
  template <std::unsigned_integral T>
  void put(T value) {
    char raw[sizeof(T)];
    for (std::size_t i = 0; i < sizeof(T); ++i) raw[i] = static_cast<char>(value >> (8 * i));
    data_.append(raw, sizeof(T));
  }
  std::string data_;
};

/// After a read past the end every value is 0 and ok() is false: check once, after the fixed part and after
/// each counted part.
class ByteReader {
 public:
  explicit ByteReader(std::string_view data) : rest_(data) {}
  std::uint8_t u8() { return get<std::uint8_t>(); }
  std::uint16_t u16() { return get<std::uint16_t>(); }
  std::uint32_t u32() { return get<std::uint32_t>(); }
  std::uint64_t u64() { return get<std::uint64_t>(); }
  double f64() { return std::bit_cast<double>(get<std::uint64_t>()); }
  base::Hash128 hash() {
    const std::uint64_t high = u64();
    return {high, u64()};
  }
  std::size_t remaining() const { return rest_.size(); }
  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }

 private:
  template <std::unsigned_integral T>
  T get() {
    if (rest_.size() < sizeof(T)) {
      ok_ = false;
      rest_ = {};
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
    }
    rest_.remove_prefix(sizeof(T));
    return static_cast<T>(value);
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace theseus::control
