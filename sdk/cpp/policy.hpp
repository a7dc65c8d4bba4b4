// Expiry policies for Curfew in C++17 and later: the contract policy_v1, over the
// header for C, policy.h, which has to lie beside it.
//
// Include it in the one source file of a policy and write hooks as functions of
// one message:
//
//     #include "policy.hpp"
//
//     static curfew::verdict half_a_minute(int64_t, const curfew::message &m) { return curfew::keep(m.enqueued_ms + 30000); }
//
//     CURFEW_ON_ENQUEUE(half_a_minute)
//
// Times are milliseconds since 1970, durations milliseconds, and curfew::none
// stands for none or never. A hook's arguments are valid until it returns.
//
// Written for clang, --target=wasm32, without a C or C++ library, exceptions and
// RTTI. Objects with constructors may be global: they are constructed once. They are not
// destroyed: compile with -fno-c++-static-destructors.
#ifndef CURFEW_POLICY_HPP
#define CURFEW_POLICY_HPP

#include <stddef.h>
#include <stdint.h>

#include "policy.h"

namespace curfew {

// None, or never.
inline constexpr int64_t none = POLICY_NONE;

// A text: a pointer and a length, without ownership. It may have any bytes, zero bytes among them, and need not be
// UTF-8. A text that is absent differs from an empty one.
class text {
 public:
  constexpr text() = default;
  constexpr text(const char *s) : data_(s), size_(s == nullptr ? 0 : length(s)) {}
  constexpr text(const char *data, uint32_t size) : data_(data), size_(size) {}

  // Whether there is a text.
  constexpr explicit operator bool() const { return data_ != nullptr; }
  constexpr const char *data() const { return data_; }
  constexpr uint32_t size() const { return size_; }
  constexpr const char *begin() const { return data_; }
  constexpr const char *end() const { return data_ + size_; }

  // A byte; outside of the text the instance ends.
  constexpr char operator[](uint32_t i) const {
    if (i >= size_) __builtin_trap();
    return data_[i];
  }

  // Texts of equal bytes are equal. An absent one equals only another.
  friend constexpr bool operator==(text a, text b) {
    if (a.size_ != b.size_ || bool(a) != bool(b)) return false;
    for (uint32_t i = 0; i < a.size_; i++) {
      if (a.data_[i] != b.data_[i]) return false;
    }
    return true;
  }
  friend constexpr bool operator!=(text a, text b) { return !(a == b); }

 private:
  static constexpr uint32_t length(const char *s) {
    uint32_t n = 0;
    while (s[n] != 0) n++;
    return n;
  }

  const char *data_ = nullptr;
  uint32_t size_ = 0;
};

// Room for a text of up to N bytes.
template <uint32_t N>
struct buffer {
  char bytes[N];
};

namespace detail {

// The first n bytes of a buffer: absent if n is negative, or more than there is room for.
constexpr text fitting(const char *bytes, uint32_t limit, int32_t n) {
  return n < 0 || uint32_t(n) > limit ? text() : text(bytes, uint32_t(n));
}

}  // namespace detail

// Properties of a message.
enum class property : int32_t {
  exchange = POLICY_EXCHANGE,
  routing_key = POLICY_ROUTING_KEY,
  message_id = POLICY_MESSAGE_ID,
  type = POLICY_TYPE,
  app_id = POLICY_APP_ID,
  user_id = POLICY_USER_ID,
};

// The occasion on which a hook is called about a message.
enum class why : uint8_t {
  enqueue = POLICY_WHY_ENQUEUE,
  deadline = POLICY_WHY_DEADLINE,
  head = POLICY_WHY_HEAD,
  requeue = POLICY_WHY_REQUEUE,
};

// A message, as hooks see it. Its fields are those of struct policy_message: enqueued_ms, expiration_ms,
// queue_ttl_ms, deadline_ms, state, size, deliveries, deaths, priority.
struct message : policy_message {
  message(const message &) = delete;  // it is known by its place
  message &operator=(const message &) = delete;

  // Whether it was delivered before.
  bool redelivered() const { return (flags & POLICY_REDELIVERED) != 0; }
  // Whether its publisher asked for it to survive a restart.
  bool persistent() const { return (flags & POLICY_PERSISTENT) != 0; }
  // Whether its queue has a dead-letter exchange.
  bool has_dlx() const { return (flags & POLICY_HAS_DLX) != 0; }
  // Why the hook is called.
  curfew::why why() const { return curfew::why(policy_message::why); }

  // A header that is a number, or can be read as one; a timestamp is milliseconds. Needs the grant headers, as the
  // other headers and properties do.
  int64_t header(text name, int64_t otherwise) const { return policy_host_header_i64(index(), name.data(), name.size(), otherwise); }

  // A header that is text, if it fits into the buffer.
  template <uint32_t N>
  text header_text(text name, buffer<N> &b) const {
    return detail::fitting(b.bytes, N, policy_host_header_str(index(), name.data(), name.size(), b.bytes, N));
  }

  // A property, if it fits into the buffer.
  template <uint32_t N>
  text property(curfew::property which, buffer<N> &b) const {
    return detail::fitting(b.bytes, N, policy_host_prop_str(index(), int32_t(which), b.bytes, N));
  }

  // A setting of its queue: message-ttl, or x-message-ttl.
  int64_t queue_setting(text name, int64_t otherwise) const { return policy_host_queue_arg_i64(queue, name.data(), name.size(), otherwise); }

  // A setting of its queue that is text, if it fits into the buffer.
  template <uint32_t N>
  text queue_text(text name, buffer<N> &b) const {
    return detail::fitting(b.bytes, N, policy_host_queue_arg_str(queue, name.data(), name.size(), b.bytes, N));
  }

  // The body from an offset on, as much as the buffer takes. Needs the grant body.
  template <uint32_t N>
  text body(uint32_t offset, buffer<N> &b) const {
    return detail::fitting(b.bytes, N, policy_host_body(index(), offset, b.bytes, N));
  }

  // Adds an attribute to its trace. Needs the grant trace.
  void trace(text key, text value) const { policy_host_trace_attr(index(), key.data(), key.size(), value.data(), value.size()); }

  // Keeps it from being delivered before a time; others pass it. It counts with a verdict that keeps the message, and
  // none takes it back. A deadline that comes first is not postponed. Needs the grant hold.
  void hold(int64_t until_ms) const { policy_host_hold(index(), until_ms); }

 private:
  uint32_t index() const { return policy_index(this); }
};

static_assert(sizeof(message) == sizeof(policy_message), "a message is a record of policy_v1");

// An exchange and a routing key, for dead_letter. The broker reads it after the hook: make it global.
class route {
 public:
  // Reads the route from two settings. The second may be absent: then messages keep their own key. Reports whether the
  // first is there and both are short enough.
  [[nodiscard]] bool from_config(text exchange, text key) {
    int32_t n = policy_host_config_str(exchange.data(), exchange.size(), r_.text, 255);
    if (n < 0 || n > 255) return false;
    int32_t k = policy_host_config_str(key.data(), key.size(), r_.text + n, 255);
    r_.exchange_length = uint16_t(n);
    r_.key_length = uint16_t(k < 0 || k > 255 ? 0 : k);
    return k <= 255;
  }

 private:
  friend class verdict;
  policy_route r_ = {};
};

// A hook's decision about a message. Functions make one: keep, expire and so on.
class verdict {
 public:
  // Stores eight bytes of the policy's own with the message.
  [[nodiscard]] constexpr verdict with_state(int64_t state) const {
    verdict v = *this;
    v.v_.flags |= 1;
    v.v_.state = state;
    return v;
  }

  // Asks for a call of on_head when the message is delivered next.
  [[nodiscard]] constexpr verdict and_ask_at_head() const {
    verdict v = *this;
    v.v_.flags |= 2;
    return v;
  }

  // For the functions that make one.
  static constexpr verdict of(uint32_t action, int64_t until_ms) { return verdict(action, until_ms); }
  static verdict to(const route &r) {
    verdict v(2, none);
    policy_dead_letter(&v.v_, &r.r_);
    return v;
  }
  constexpr operator policy_verdict() const { return v_; }

 private:
  constexpr verdict(uint32_t action, int64_t until_ms) : v_{action, 0, until_ms, 0, nullptr, 0, 0} {}
  policy_verdict v_;
};

// Keeps the message until a time; none means for ever.
[[nodiscard]] constexpr verdict keep(int64_t until_ms) { return verdict::of(0, until_ms); }
// Expires the message: it is dead-lettered if the queue is configured for it, and dropped otherwise.
[[nodiscard]] constexpr verdict expire() { return verdict::of(1, none); }
// Dead-letters the message to an exchange of the policy's choice. Needs the grant route.
[[nodiscard]] inline verdict dead_letter(const route &to) { return verdict::to(to); }
verdict dead_letter(const route &&) = delete;  // it would be gone when the broker reads it
// Keeps the message, and calls the policy about it again, not before that time.
[[nodiscard]] constexpr verdict ask_again(int64_t not_before_ms) { return verdict::of(3, not_before_ms); }
// Drops the message without dead-lettering it.
[[nodiscard]] constexpr verdict discard() { return verdict::of(4, none); }
// The broker decides as without a policy, by the message's expiration and the queue's message-ttl.
[[nodiscard]] constexpr verdict no_opinion() { return verdict::of(255, none); }

// A decision of on_idle about a queue without consumers.
class idle {
 public:
  static constexpr idle no_opinion() { return idle(POLICY_IDLE_NO_OPINION); } // the queue's x-expires decides
  static constexpr idle remove() { return idle(POLICY_IDLE_DELETE); }
  static constexpr idle stays() { return idle(POLICY_IDLE_STAYS); }
  static constexpr idle ask_at(int64_t t) { return idle(t); } // it stays until then at least
  constexpr int64_t code() const { return code_; }

 private:
  constexpr explicit idle(int64_t code) : code_(code) {}
  int64_t code_;
};

// A setting of the configuration. Nested settings have names with dots.
inline int64_t config(text name, int64_t otherwise) { return policy_host_config_i64(name.data(), name.size(), otherwise); }

// A setting that is text, if it fits into the buffer.
template <uint32_t N>
text config_text(text name, buffer<N> &b) {
  return detail::fitting(b.bytes, N, policy_host_config_str(name.data(), name.size(), b.bytes, N));
}

// Why a configuration is refused, for the operator; accepted is no reason.
using refusal = text;
inline constexpr refusal accepted = {};

enum class level : int32_t { debug = POLICY_DEBUG, info = POLICY_INFO, warn = POLICY_WARN, error = POLICY_ERROR };

// Writes a line to the broker's log, whose rate is limited.
inline void log(level l, text line) { policy_host_log(int32_t(l), line.data(), line.size()); }
// Whether the log takes lines of this level at all.
inline bool log_enabled(level l) { return policy_host_log_enabled(int32_t(l)) != 0; }

// Adds to a metric of the policy. Needs the grant metrics.
inline void count(text name, int64_t delta) { policy_host_counter_add(name.data(), name.size(), delta); }

// Ends the call and the instance: the policy's on_error decides about the messages. The broker's log has the text.
[[noreturn]] inline void panic(text why) {
  policy_host_fail(why.data(), why.size());
  __builtin_trap();
}

namespace detail {

template <typename F>
inline int32_t each(int64_t now, uint32_t n, F hook) {
  const message *ms = reinterpret_cast<const message *>(policy_buffer);
  policy_verdict *vs = reinterpret_cast<policy_verdict *>(policy_buffer + n * (sizeof(message) / sizeof *policy_buffer));
  for (uint32_t i = 0; i < n; i++) vs[i] = verdict(hook(now, ms[i]));
  return 0;
}

inline int32_t configured(refusal why) {
  if (!why) return 0;
  policy_host_fail(why.data(), why.size());
  return -1;
}

}  // namespace detail
}  // namespace curfew

// Each exports a function as a hook of the policy:
// on_enqueue, on_deadline, on_head and on_requeue: curfew::verdict(int64_t now, const curfew::message &)
// on_idle: curfew::idle(int64_t now, int64_t idle_ms, uint32_t ready, uint32_t unacked, uint32_t consumers)
// configure: curfew::refusal()
#define CURFEW_HOOK(hook, function) \
  extern "C" POLICY_EXPORT(hook) int32_t curfew_##hook(int64_t now, uint32_t n) { return curfew::detail::each(now, n, function); }
#define CURFEW_ON_ENQUEUE(function) CURFEW_HOOK(on_enqueue, function)
#define CURFEW_ON_DEADLINE(function) CURFEW_HOOK(on_deadline, function)
#define CURFEW_ON_HEAD(function) CURFEW_HOOK(on_head, function)
#define CURFEW_ON_REQUEUE(function) CURFEW_HOOK(on_requeue, function)
#define CURFEW_ON_IDLE(function)                                                                                                        \
  extern "C" POLICY_EXPORT(on_idle) int64_t curfew_on_idle(int64_t now, int64_t idle_ms, uint32_t ready, uint32_t unacked, uint32_t consumers) { \
    return function(now, idle_ms, ready, unacked, consumers).code();                                                                    \
  }
#define CURFEW_CONFIGURE(function) \
  extern "C" POLICY_EXPORT(policy_configure) int32_t curfew_configure(uint32_t) { return curfew::detail::configured(function()); }

// Constructs the policy's global objects, once. Without this call the linker leaves out their constructors.
extern "C" void __wasm_call_ctors();
extern "C" POLICY_EXPORT(_initialize) void curfew_initialize() { __wasm_call_ctors(); }

// Compilers call this instead of a virtual function that a class does not have.
extern "C" __attribute__((weak)) void __cxa_pure_virtual() { __builtin_trap(); }

#endif
