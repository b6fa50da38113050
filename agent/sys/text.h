/* Text in buffers of the caller's, without the C library, whose functions look for a locale in thread-local storage. The
 * agent's own thread has none. SIGNAL-SAFE. */
#ifndef STACKD_TEXT_H_
#define STACKD_TEXT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is appended is cut where the buffer ends; it is NUL-terminated at all times. */
struct stackd_text {
  char* start;
  size_t length;
  size_t size_bytes; /* of the buffer, at least 1 */
};

struct stackd_text stackd_text_in(char* buffer, size_t size_bytes);
void stackd_put(struct stackd_text* text, const char* string);
void stackd_put_bytes(struct stackd_text* text, const char* bytes, size_t count);
void stackd_put_number(struct stackd_text* text, uint64_t number, unsigned base);

/* Addresses in network order; IPv6 as RFC 5952 writes it: the first of the longest runs of two zero groups or more is "::".
 */
void stackd_put_ipv4(struct stackd_text* text, const uint8_t bytes[4]);
void stackd_put_ipv6(struct stackd_text* text, const uint8_t bytes[16]);

/* The number in front, behind spaces; `*at` is then what follows it, or unchanged where there is none. A "-" in front of it
 * and what does not fit make no number. */
uint64_t stackd_take_number(const char** at, unsigned base);

#endif /* STACKD_TEXT_H_ */
