;; NAME is an expiry policy: messages wait for ttl-ms milliseconds, or less if
;; their publisher or their queue says so.
(module
  (import "policy_v1" "config_i64" (func $config (param i32 i32 i64) (result i64)))
  (import "policy_v1" "fail" (func $fail (param i32 i32)))

  (memory (export "memory") 1)
  (data (i32.const 0) "ttl-ms")
  (data (i32.const 16) "ttl-ms has to be from 1 to 1000000000000")

  (global $ttl (mut i64) (i64.const 0))

  ;; No message at once: the broker calls deadline for each by itself.
  (func (export "policy_v1") (result i32)
    (i32.const 0))

  (func (export "policy_configure") (param $length i32) (result i32)
    (global.set $ttl (call $config (i32.const 0) (i32.const 6) (i64.const 60000)))
    (if (result i32)
      (i64.lt_u (i64.sub (global.get $ttl) (i64.const 1)) (i64.const 1000000000000))
      (then (i32.const 0))
      (else
        (call $fail (i32.const 16) (i32.const 40))
        (i32.const -1))))

  ;; The lower of two durations. None is -1: without its sign, the longest.
  (func $lower (param $a i64) (param $b i64) (result i64)
    (select (local.get $a) (local.get $b) (i64.lt_u (local.get $a) (local.get $b))))

  (func (export "deadline")
    (param $enqueued i64) (param $expiration i64) (param $queue_ttl i64)
    (param $priority i32) (param $deliveries i32) (param $size i32)
    (result i64)
    (i64.add (local.get $enqueued)
      (call $lower (global.get $ttl)
        (call $lower (local.get $expiration) (local.get $queue_ttl))))))
