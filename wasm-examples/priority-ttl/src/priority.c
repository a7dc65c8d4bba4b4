// Priority-aware TTL: how long a message may wait depends on its priority.
#include "policy.h"

enum { PRIORITIES = 256 };

static int64_t ttl[PRIORITIES];  // milliseconds; POLICY_NONE = no limit

// setting writes "ttl-ms.N" and returns its length.
static uint32_t setting(char *name, uint32_t priority) {
  static const char prefix[] = "ttl-ms.";
  uint32_t n = 0;
  for (; prefix[n]; n++) name[n] = prefix[n];
  if (priority >= 100) name[n++] = (char)('0' + priority / 100);
  if (priority >= 10) name[n++] = (char)('0' + priority / 10 % 10);
  name[n++] = (char)('0' + priority % 10);
  return n;
}

// A priority without a time of its own has that of the next lower one.
POLICY_CONFIGURE() {
  int64_t last = policy_config_i64("default-ms", POLICY_NONE);
  for (uint32_t p = 0; p < PRIORITIES; p++) {
    char name[16];
    last = policy_host_config_i64(name, setting(name, p), last);
    if (last < POLICY_NONE || last > INT32_MAX * 1000LL) {
      policy_fail("a time in ttl-ms or default-ms is out of range: accepted are 0 to 2147483647000, and -1 for no limit");
      return;
    }
    ttl[p] = last;
  }
}

static int64_t lower(int64_t a, int64_t b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

// The publisher and the queue may ask for less, never for more.
POLICY_HOOK(on_enqueue, now, m, v) {
  int64_t t = lower(ttl[m->priority], lower(m->expiration_ms, m->queue_ttl_ms));
  policy_keep(v, t < 0 ? POLICY_NONE : m->enqueued_ms + t);
}
