// The guest of the conformance kit, in C++.
#include "policy.hpp"

namespace {

using namespace curfew;

route both, exchange_only;

refusal configure() {
  if (config("refuse", 0) != 0) return "as asked";
  if (!both.from_config("exchange", "key") || !exchange_only.from_config("exchange", "nothing")) {
    return "exchange and key have to be set";
  }
  return accepted;
}

// Says a number.
verdict number(int64_t n) { return keep(none).with_state(n); }

// Says a text, if there is one.
verdict say(const message &m, text key, text said) {
  if (!said) return number(-1);
  m.trace(key, said);
  return number(said.size());
}

buffer<1024> room;

verdict properties(const message &m) {
  constexpr struct {
    property which;
    text name;
  } all[] = {{property::exchange, "exchange"}, {property::routing_key, "routing-key"}, {property::message_id, "message-id"},
             {property::type, "type"},         {property::app_id, "app-id"},           {property::user_id, "user-id"}};
  int64_t present = 0;
  for (const auto &p : all) {
    text said = m.property(p.which, room);
    static_cast<void>(say(m, p.name, said));
    if (said) present++;
  }
  return number(present);
}

verdict all_levels() {
  constexpr level levels[] = {level::debug, level::info, level::warn, level::error};
  int64_t enabled = 0;
  for (level l : levels) {
    log(l, "hello");
    enabled |= int64_t(log_enabled(l)) << int32_t(l);
  }
  return number(enabled);
}

template <typename... Numbers>
verdict digits(Numbers... numbers) {
  int64_t all = 0;
  ((all = all * 1000 + int64_t(numbers)), ...);
  return number(all);
}

verdict record(int64_t now, const message &m) {
  return digits(m.expiration_ms, m.queue_ttl_ms, m.deadline_ms - now, m.state, m.size, m.deliveries);
}

verdict rest(int64_t now, const message &m) {
  int flags = m.redelivered() + 2 * m.persistent() + 4 * m.has_dlx();
  return digits(now - m.enqueued_ms, m.deaths, m.priority, flags, uint8_t(m.why()));
}

verdict held(const message &m, int64_t until_ms, verdict v) {
  m.hold(until_ms);
  return v;
}

verdict enter(int64_t now, const message &m) {
  buffer<8> eight;
  switch (m.priority) {
    case 1: return keep(m.enqueued_ms + 1000);
    case 2: return keep(none);
    case 3: return expire();
    case 4: return discard();
    case 5: return ask_again(now + 5000);
    case 6: return dead_letter(both);
    case 7: return dead_letter(exchange_only);
    case 8: return number(m.header("number", -7));
    case 9: return say(m, "text", m.header_text("text", room));
    case 10: return properties(m);
    case 11: return say(m, "body", m.body(4, eight));
    case 12: return number(config("deep.number", -7));
    case 13: return say(m, "text", config_text("deep.text", room));
    case 14: return number(m.queue_setting("x-max-length", -7));
    case 15: return say(m, "text", m.queue_text("overflow", room));
    case 16: return all_levels();
    case 17: count("asked", m.size); return no_opinion();
    case 18: return record(now, m);
    case 19: return rest(now, m);
    case 20: return keep(none).and_ask_at_head();
    case 21: return held(m, now + 2000, keep(none));
    case 22: return held(m, now + 2000, no_opinion());
    case 23: m.hold(now + 2000); return held(m, none, no_opinion());
  }
  return no_opinion();
}

verdict due(int64_t now, const message &m) {
  switch (m.priority) {
    case 0: return expire();
    case 1: return keep(now + 1000).with_state(m.state + 1);
    case 2: return dead_letter(both);
    case 3: return ask_again(now + 5000);
    case 4: return discard();
  }
  return no_opinion();
}

verdict head(int64_t now, const message &m) {
  switch (m.priority) {
    case 0: return keep(now + 10);
    case 2: return held(m, now + 10, no_opinion());
  }
  return no_opinion();
}

verdict back(int64_t, const message &m) {
  switch (m.priority) {
    case 0: return keep(m.deadline_ms + 1000).with_state(m.deliveries);
    case 2: return held(m, m.deadline_ms, no_opinion());
  }
  return no_opinion();
}

idle unused(int64_t now, int64_t idle_ms, uint32_t ready, uint32_t unacked, uint32_t consumers) {
  switch (ready) {
    case 0: return idle::ask_at(now + idle_ms + unacked * 1000 + consumers);
    case 1: return idle::no_opinion();
    case 2: return idle::remove();
  }
  return idle::stays();
}

}  // namespace

CURFEW_CONFIGURE(configure)
CURFEW_ON_ENQUEUE(enter)
CURFEW_ON_DEADLINE(due)
CURFEW_ON_HEAD(head)
CURFEW_ON_REQUEUE(back)
CURFEW_ON_IDLE(unused)
