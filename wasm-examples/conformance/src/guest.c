// The guest of the conformance kit, in C.
#include "policy.h"

static struct policy_route both, exchange_only;

POLICY_CONFIGURE() {
  if (policy_config_i64("refuse", 0) != 0) {
    policy_fail("as asked");
    return;
  }
  if (!policy_route_from_config(&both, "exchange", "key") || !policy_route_from_config(&exchange_only, "exchange", "nothing")) {
    policy_fail("exchange and key have to be set");
  }
}

// number says a number.
static void number(struct policy_verdict *v, int64_t n) {
  policy_keep(v, POLICY_NONE);
  policy_set_state(v, n);
}

static char buffer[1024];

// text says a text of n bytes that is in the buffer; -1 is none.
static void text(const struct policy_message *m, struct policy_verdict *v, const char *key, int32_t n) {
  if (n >= 0) policy_host_trace_attr(policy_index(m), key, POLICY_LENGTH(key), buffer, (uint32_t)n);
  number(v, n);
}

static void properties(const struct policy_message *m, struct policy_verdict *v) {
  static const char *const names[] = {"exchange", "routing-key", "message-id", "type", "app-id", "user-id"};
  int64_t present = 0;
  for (int32_t p = POLICY_EXCHANGE; p <= POLICY_USER_ID; p++) {
    int32_t n = policy_property(m, p, buffer, sizeof buffer);
    text(m, v, names[p - 1], n);
    if (n >= 0) present++;
  }
  number(v, present);
}

static void all_levels(struct policy_verdict *v) {
  int64_t enabled = 0;
  for (int32_t level = POLICY_DEBUG; level <= POLICY_ERROR; level++) {
    policy_log(level, "hello");
    enabled |= (int64_t)policy_log_enabled(level) << level;
  }
  number(v, enabled);
}

static int64_t record(const struct policy_message *m, int64_t now) {
  int64_t n = m->expiration_ms;
  n = n * 1000 + m->queue_ttl_ms;
  n = n * 1000 + m->deadline_ms - now;
  n = n * 1000 + m->state;
  n = n * 1000 + m->size;
  return n * 1000 + m->deliveries;
}

static int64_t rest(const struct policy_message *m, int64_t now) {
  int64_t n = now - m->enqueued_ms;
  n = n * 1000 + m->deaths;
  n = n * 1000 + m->priority;
  n = n * 1000 + m->flags;
  return n * 1000 + m->why;
}

POLICY_HOOK(on_enqueue, now, m, v) {
  switch (m->priority) {
    case 1: policy_keep(v, m->enqueued_ms + 1000); break;
    case 2: policy_keep(v, POLICY_NONE); break;
    case 3: policy_expire(v); break;
    case 4: policy_drop(v); break;
    case 5: policy_ask_again(v, now + 5000); break;
    case 6: policy_dead_letter(v, &both); break;
    case 7: policy_dead_letter(v, &exchange_only); break;
    case 8: number(v, policy_header_i64(m, "number", -7)); break;
    case 9: text(m, v, "text", policy_header_str(m, "text", buffer, sizeof buffer)); break;
    case 10: properties(m, v); break;
    case 11: text(m, v, "body", policy_body(m, 4, buffer, 8)); break;
    case 12: number(v, policy_config_i64("deep.number", -7)); break;
    case 13: text(m, v, "text", policy_config_str("deep.text", buffer, sizeof buffer)); break;
    case 14: number(v, policy_queue_i64(m, "x-max-length", -7)); break;
    case 15: text(m, v, "text", policy_queue_str(m, "overflow", buffer, sizeof buffer)); break;
    case 16: all_levels(v); break;
    case 17: policy_count("asked", m->size); break;
    case 18: number(v, record(m, now)); break;
    case 19: number(v, rest(m, now)); break;
    case 20: policy_keep(v, POLICY_NONE), policy_ask_at_head(v); break;
    case 21: policy_keep(v, POLICY_NONE), policy_hold(m, now + 2000); break;
    case 22: policy_hold(m, now + 2000); break;
    case 23: policy_hold(m, now + 2000), policy_hold(m, POLICY_NONE); break;
  }
}

POLICY_HOOK(on_deadline, now, m, v) {
  switch (m->priority) {
    case 0: policy_expire(v); break;
    case 1: policy_keep(v, now + 1000), policy_set_state(v, m->state + 1); break;
    case 2: policy_dead_letter(v, &both); break;
    case 3: policy_ask_again(v, now + 5000); break;
    case 4: policy_drop(v); break;
  }
}

POLICY_HOOK(on_head, now, m, v) {
  if (m->priority == 0) policy_keep(v, now + 10);
  if (m->priority == 2) policy_hold(m, now + 10);
}

POLICY_HOOK(on_requeue, now, m, v) {
  if (m->priority == 2) policy_hold(m, m->deadline_ms);
  if (m->priority != 0) return;
  policy_keep(v, m->deadline_ms + 1000);
  policy_set_state(v, m->deliveries);
}

POLICY_IDLE(now, idle_ms, ready, unacked, consumers) {
  switch (ready) {
    case 0: return now + idle_ms + unacked * 1000 + consumers;
    case 1: return POLICY_IDLE_NO_OPINION;
    case 2: return POLICY_IDLE_DELETE;
  }
  return POLICY_IDLE_STAYS;
}
