/* Hashes: keys of random streams and of tables. Integers only, the same on every machine. */
#ifndef SF_BASE_HASH_H
#define SF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Finaliser of splitmix64 (Steele, Lea, Flood 2014, "mix13" constants): a bijection of 64 bits. */
static inline uint64_t sf_mix64(uint64_t x) {
  x ^= x >> 30;
  x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27;
  x *= UINT64_C(0x94d049bb133111eb);
  x ^= x >> 31;
  return x;
}

/* Chains a value into a hash; order matters. */
static inline uint64_t sf_hash_u64(uint64_t hash, uint64_t value) {
  return sf_mix64(hash ^ (value + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) + (hash >> 2)));
}

/* FNV-1a over bytes, then mixed into hash. */
uint64_t sf_hash_bytes(uint64_t hash, const void *data, size_t size_bytes);
uint64_t sf_hash_string(uint64_t hash, const char *text); /* its bytes without the NUL */

#endif
