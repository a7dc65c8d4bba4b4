;; Size-aware TTL: the heavier a message, the shorter it may wait.
;;
;; The smallest kind of policy: one function that gets six numbers and returns
;; the deadline. There is a memory only because the names of settings have to be
;; somewhere.
(module
  (import "policy_v1" "config_i64" (func $config (param i32 i32 i64) (result i64)))
  (import "policy_v1" "fail" (func $fail (param i32 i32)))

  (memory (export "memory") 1)
  (data (i32.const 0) "base-ms")
  (data (i32.const 16) "per-kib-ms")
  (data (i32.const 32) "least-ms")
  (data (i32.const 64) "base-ms, per-kib-ms and least-ms have to be from 0 to 315360000000")

  (global $base (mut i64) (i64.const 0))
  (global $per_kib (mut i64) (i64.const 0))
  (global $least (mut i64) (i64.const 0))

  ;; No message at once: each is asked about by itself.
  (func (export "policy_v1") (result i32)
    (i32.const 0))

  (func (export "policy_configure") (param $length i32) (result i32)
    (global.set $base (call $config (i32.const 0) (i32.const 7) (i64.const 60000)))
    (global.set $per_kib (call $config (i32.const 16) (i32.const 10) (i64.const 10)))
    (global.set $least (call $config (i32.const 32) (i32.const 8) (i64.const 1000)))
    (if (result i32)
      (i32.and
        (i32.and (call $sane (global.get $base)) (call $sane (global.get $per_kib)))
        (call $sane (global.get $least)))
      (then (i32.const 0))
      (else
        (call $fail (i32.const 64) (i32.const 66))
        (i32.const -1))))

  ;; Up to ten years. A negative number is larger than that without its sign.
  (func $sane (param $ms i64) (result i32)
    (i64.le_u (local.get $ms) (i64.const 315360000000)))

  ;; The lower of two durations, of which -1 is none: without its sign the largest.
  (func $lower (param $a i64) (param $b i64) (result i64)
    (select (local.get $a) (local.get $b) (i64.lt_u (local.get $a) (local.get $b))))

  (func (export "deadline")
    (param $enqueued i64) (param $expiration i64) (param $queue_ttl i64)
    (param $priority i32) (param $deliveries i32) (param $size i32)
    (result i64)
    (local $ttl i64)
    ;; base less per-kib for each whole KiB, and least at the least
    (local.set $ttl
      (i64.sub
        (global.get $base)
        (i64.mul (global.get $per_kib)
          (i64.extend_i32_u (i32.shr_u (local.get $size) (i32.const 10))))))
    (local.set $ttl
      (select (local.get $ttl) (global.get $least)
        (i64.gt_s (local.get $ttl) (global.get $least))))
    ;; the publisher and the queue may ask for less
    (i64.add (local.get $enqueued)
      (call $lower (local.get $ttl)
        (call $lower (local.get $expiration) (local.get $queue_ttl))))))
