// Expiry policies for Curfew in C: the contract policy_v1, in one header.
//
// Include it in the one source file of a policy and write hooks as functions of
// one message:
//
//     #include "policy.h"
//
//     POLICY_HOOK(on_enqueue, now, m, v) { policy_keep(v, m->enqueued_ms + 30000); }
//
// Times are milliseconds since 1970, durations milliseconds, and POLICY_NONE
// stands for none or never. A hook's pointers are valid until it returns. If a
// hook sets no verdict, the broker decides by the message's expiration and the
// queue's message-ttl.
//
// Written for clang, --target=wasm32, without a C library.
#ifndef CURFEW_POLICY_H
#define CURFEW_POLICY_H

#include <stdbool.h>
#include <stdint.h>

// The most messages of a call: 1 to 1024. A policy may define it before the
// include.
#ifndef POLICY_CAPACITY
#define POLICY_CAPACITY 64
#endif

#define POLICY_NONE (-1LL)

// A message, as hooks see it.
struct policy_message {
  int64_t enqueued_ms;    // when it was enqueued in this queue
  int64_t expiration_ms;  // the publisher's expiration, a duration
  int64_t queue_ttl_ms;   // the queue's message-ttl, a duration
  int64_t deadline_ms;    // in force
  int64_t state;          // stored by the policy
  uint32_t size;          // bytes of body
  uint32_t deliveries;    // how often it was delivered and requeued
  uint32_t deaths;        // how often it was dead-lettered
  uint32_t queue;         // for policy_queue_i64 and policy_queue_str
  uint8_t priority;
  uint8_t flags;  // POLICY_REDELIVERED and so on
  uint8_t why;    // POLICY_WHY_ENQUEUE and so on
  uint8_t reserved[5];
};

enum { POLICY_REDELIVERED = 1, POLICY_PERSISTENT = 2, POLICY_HAS_DLX = 4 };
enum { POLICY_WHY_ENQUEUE = 1, POLICY_WHY_DEADLINE = 2, POLICY_WHY_HEAD = 3, POLICY_WHY_REQUEUE = 4 };

// A hook's verdict about a message; the functions below fill it in.
struct policy_verdict {
  uint32_t action;
  uint32_t flags;
  int64_t until_ms;
  int64_t state;
  const char *text;  // the exchange, and the routing key right behind it
  uint16_t exchange_length;
  uint16_t key_length;
};

#ifdef __cplusplus
#define POLICY_ASSERT static_assert
#else
#define POLICY_ASSERT _Static_assert
#endif

POLICY_ASSERT(sizeof(struct policy_message) == 64, "a record of policy_v1 has 64 bytes");
POLICY_ASSERT(sizeof(struct policy_verdict) == 32, "a verdict of policy_v1 has 32 bytes");

// --- Verdicts ---

// Keeps the message until a time; POLICY_NONE means for ever.
static inline void policy_keep(struct policy_verdict *v, int64_t until_ms) {
  v->action = 0;
  v->until_ms = until_ms;
}

// Expires the message: it is dead-lettered if the queue is configured for it,
// and dropped otherwise.
static inline void policy_expire(struct policy_verdict *v) { v->action = 1; }

// Keeps the message, and calls the policy about it again, not before that time.
static inline void policy_ask_again(struct policy_verdict *v, int64_t not_before_ms) {
  v->action = 3;
  v->until_ms = not_before_ms;
}

// Drops the message without dead-lettering it.
static inline void policy_drop(struct policy_verdict *v) { v->action = 4; }

// Stores eight bytes of the policy's own with the message.
static inline void policy_set_state(struct policy_verdict *v, int64_t state) {
  v->flags |= 1;
  v->state = state;
}

// Asks for a call of on_head when the message is delivered next.
static inline void policy_ask_at_head(struct policy_verdict *v) { v->flags |= 2; }

// The target of policy_dead_letter. The broker reads it after the hook: make it
// static.
struct policy_route {
  char text[2 * 255];  // the exchange, and the routing key right behind it
  uint16_t exchange_length;
  uint16_t key_length;  // 0 = messages keep their own
};

// Dead-letters the message to an exchange of the policy's choice. Needs the grant route.
static inline void policy_dead_letter(struct policy_verdict *v, const struct policy_route *to) {
  v->action = 2;
  v->until_ms = POLICY_NONE;
  v->text = to->text;
  v->exchange_length = to->exchange_length;
  v->key_length = to->key_length;
}

// --- The broker's functions ---

#define POLICY_IMPORT(name) __attribute__((import_module("policy_v1"), import_name(#name)))
#define POLICY_EXPORT(name) __attribute__((export_name(#name)))

POLICY_IMPORT(log) void policy_host_log(int32_t level, const char *text, uint32_t length);
POLICY_IMPORT(log_enabled) int32_t policy_host_log_enabled(int32_t level);
POLICY_IMPORT(fail) void policy_host_fail(const char *text, uint32_t length);
POLICY_IMPORT(config_i64) int64_t policy_host_config_i64(const char *name, uint32_t length, int64_t otherwise);
POLICY_IMPORT(config_str) int32_t policy_host_config_str(const char *name, uint32_t length, char *buffer, uint32_t limit);
POLICY_IMPORT(queue_arg_i64) int64_t policy_host_queue_arg_i64(uint32_t queue, const char *name, uint32_t length, int64_t otherwise);
POLICY_IMPORT(queue_arg_str) int32_t policy_host_queue_arg_str(uint32_t queue, const char *name, uint32_t length, char *buffer, uint32_t limit);
POLICY_IMPORT(header_i64) int64_t policy_host_header_i64(uint32_t message, const char *name, uint32_t length, int64_t otherwise);
POLICY_IMPORT(header_str) int32_t policy_host_header_str(uint32_t message, const char *name, uint32_t length, char *buffer, uint32_t limit);
POLICY_IMPORT(prop_str) int32_t policy_host_prop_str(uint32_t message, int32_t property, char *buffer, uint32_t limit);
POLICY_IMPORT(body) int32_t policy_host_body(uint32_t message, uint32_t offset, char *buffer, uint32_t limit);
POLICY_IMPORT(counter_add) void policy_host_counter_add(const char *name, uint32_t length, int64_t delta);
POLICY_IMPORT(trace_attr) void policy_host_trace_attr(uint32_t message, const char *key, uint32_t key_length, const char *value, uint32_t value_length);
POLICY_IMPORT(hold) void policy_host_hold(uint32_t message, int64_t until_ms);

// The records of a call's messages, followed by their verdicts.
static uint64_t policy_buffer[POLICY_CAPACITY * 96 / 8];

// Set by policy_fail.
static int32_t policy_result;

__attribute__((unused, no_builtin("strlen"))) static uint32_t policy_length(const char *s) {
  uint32_t n = 0;
  while (s[n]) n++;
  return n;
}

// The length of a text: a constant where the text is one.
#define POLICY_LENGTH(s) (__builtin_constant_p(__builtin_strlen(s)) ? (uint32_t)__builtin_strlen(s) : policy_length(s))
#define POLICY_INLINE __attribute__((always_inline)) static inline

// The message's number in the current call.
POLICY_INLINE uint32_t policy_index(const struct policy_message *m) {
  return (uint32_t)(m - (const struct policy_message *)policy_buffer);
}

enum { POLICY_DEBUG, POLICY_INFO, POLICY_WARN, POLICY_ERROR };

POLICY_INLINE void policy_log(int32_t level, const char *text) { policy_host_log(level, text, POLICY_LENGTH(text)); }
POLICY_INLINE bool policy_log_enabled(int32_t level) { return policy_host_log_enabled(level) != 0; }

// In POLICY_CONFIGURE: refuses the configuration; the operator reads the text. In
// a hook: fails the call, so that the policy's on-error decides about its
// messages. Either way return afterwards.
POLICY_INLINE void policy_fail(const char *why) {
  policy_host_fail(why, POLICY_LENGTH(why));
  policy_result = -1;
}

// A setting of the configuration. Nested settings have names with dots.
POLICY_INLINE int64_t policy_config_i64(const char *name, int64_t otherwise) {
  return policy_host_config_i64(name, POLICY_LENGTH(name), otherwise);
}

// Functions that return text write nothing if it is longer than limit. They
// return its length either way, and -1 if there is none. No zero byte follows
// the text.
POLICY_INLINE int32_t policy_config_str(const char *name, char *buffer, uint32_t limit) {
  return policy_host_config_str(name, POLICY_LENGTH(name), buffer, limit);
}

// A setting of the message's queue, "message-ttl" or "x-message-ttl".
POLICY_INLINE int64_t policy_queue_i64(const struct policy_message *m, const char *name, int64_t otherwise) {
  return policy_host_queue_arg_i64(m->queue, name, POLICY_LENGTH(name), otherwise);
}
POLICY_INLINE int32_t policy_queue_str(const struct policy_message *m, const char *name, char *buffer, uint32_t limit) {
  return policy_host_queue_arg_str(m->queue, name, POLICY_LENGTH(name), buffer, limit);
}

// A header of the message. Needs the grant headers, as properties do.
POLICY_INLINE int64_t policy_header_i64(const struct policy_message *m, const char *name, int64_t otherwise) {
  return policy_host_header_i64(policy_index(m), name, POLICY_LENGTH(name), otherwise);
}
POLICY_INLINE int32_t policy_header_str(const struct policy_message *m, const char *name, char *buffer, uint32_t limit) {
  return policy_host_header_str(policy_index(m), name, POLICY_LENGTH(name), buffer, limit);
}

enum { POLICY_EXCHANGE = 1, POLICY_ROUTING_KEY, POLICY_MESSAGE_ID, POLICY_TYPE, POLICY_APP_ID, POLICY_USER_ID };

POLICY_INLINE int32_t policy_property(const struct policy_message *m, int32_t property, char *buffer, uint32_t limit) {
  return policy_host_prop_str(policy_index(m), property, buffer, limit);
}

// Copies up to limit bytes of the body from offset on, and returns how many.
// Needs the grant body.
POLICY_INLINE int32_t policy_body(const struct policy_message *m, uint32_t offset, char *buffer, uint32_t limit) {
  return policy_host_body(policy_index(m), offset, buffer, limit);
}

// Adds to a metric of the policy. Needs the grant metrics.
POLICY_INLINE void policy_count(const char *name, int64_t delta) { policy_host_counter_add(name, POLICY_LENGTH(name), delta); }

// Adds an attribute to the message's trace. Needs the grant trace.
POLICY_INLINE void policy_trace(const struct policy_message *m, const char *key, const char *value) {
  policy_host_trace_attr(policy_index(m), key, POLICY_LENGTH(key), value, POLICY_LENGTH(value));
}

// Keeps the message from being delivered before a time; others pass it. It counts
// with a verdict that keeps the message, and POLICY_NONE takes it back. A deadline
// that comes first is not postponed. Needs the grant hold.
POLICY_INLINE void policy_hold(const struct policy_message *m, int64_t until_ms) { policy_host_hold(policy_index(m), until_ms); }

// Reads a route from two settings. The second may be absent; reports whether
// the first is there and both are short enough.
POLICY_INLINE bool policy_route_from_config(struct policy_route *r, const char *exchange, const char *key) {
  int32_t n = policy_config_str(exchange, r->text, 255);
  if (n < 0 || n > 255) return false;
  int32_t k = policy_config_str(key, r->text + n, 255);
  r->exchange_length = (uint16_t)n;
  r->key_length = k < 0 || k > 255 ? 0 : (uint16_t)k;
  return k <= 255;
}

// --- Hooks ---

#define POLICY_UNUSED __attribute__((unused))

// A function of one message, for on_enqueue, on_deadline, on_head and
// on_requeue: POLICY_HOOK(on_enqueue, now, m, v) { ... }
#define POLICY_HOOK(hook, now, m, v)                                                                                       \
  POLICY_INLINE void hook##_one(int64_t now, const struct policy_message *m, struct policy_verdict *v);                    \
  POLICY_EXPORT(hook) int32_t hook##_all(int64_t now, uint32_t n) {                                                        \
    const struct policy_message *ms = (const struct policy_message *)policy_buffer;                                        \
    struct policy_verdict *vs = (struct policy_verdict *)(ms + n);                                                         \
    policy_result = 0;                                                                                                     \
    for (uint32_t i = 0; i < n && policy_result == 0; i++) hook##_one(now, ms + i, vs + i);                                \
    return policy_result;                                                                                                  \
  }                                                                                                                        \
  POLICY_INLINE void hook##_one(POLICY_UNUSED int64_t now, POLICY_UNUSED const struct policy_message *m, POLICY_UNUSED struct policy_verdict *v)

// Reads and checks the configuration: POLICY_CONFIGURE() { ... }
#define POLICY_CONFIGURE()                                                  \
  POLICY_INLINE void policy_read_config(void);                              \
  POLICY_EXPORT(policy_configure) int32_t policy_configure(uint32_t length) { \
    (void)length;                                                           \
    policy_result = 0;                                                      \
    policy_read_config();                                                   \
    return policy_result;                                                   \
  }                                                                         \
  POLICY_INLINE void policy_read_config(void)

// Called while the queue has no consumers. Returns when it is called again, or one
// of the values below:
// POLICY_IDLE(now, idle_ms, ready, unacked, consumers) { ... }
#define POLICY_IDLE(now, idle_ms, ready, unacked, consumers)                                                      \
  POLICY_EXPORT(on_idle)                                                                                          \
  int64_t policy_on_idle(POLICY_UNUSED int64_t now, POLICY_UNUSED int64_t idle_ms, POLICY_UNUSED uint32_t ready, \
                         POLICY_UNUSED uint32_t unacked, POLICY_UNUSED uint32_t consumers)

enum { POLICY_IDLE_NO_OPINION = 0, POLICY_IDLE_DELETE = -1, POLICY_IDLE_STAYS = -2 };

// --- Handshake ---

POLICY_EXPORT(policy_v1) int32_t policy_v1(void) { return POLICY_CAPACITY; }

POLICY_EXPORT(policy_buf) void *policy_buf(uint32_t bytes) { return bytes <= sizeof policy_buffer ? policy_buffer : 0; }

#endif
