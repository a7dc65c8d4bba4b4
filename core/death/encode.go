package death

import "encoding/binary"

// An entry of x-death on the wire, as an element of the array. The numbers are
// lengths; strings and tables are preceded by theirs in four octets.
//
//	'F' u32 | 19 original-expiration 'S' u32 .. | 5 count 'l' i64 | 6 reason 'S' u32 .. | 5 queue 'S' u32 .. |
//	        | 4 time 'T' u64 | 8 exchange 'S' u32 .. | 12 routing-keys 'A' u32 ('S' u32 ..)*

func appendKey(dst []byte, key string, kind byte) []byte {
	dst = append(dst, byte(len(key)))
	dst = append(dst, key...)
	return append(dst, kind)
}

func appendText[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

func appendTextField[S string | []byte](dst []byte, key string, value S) []byte {
	return appendText(appendKey(dst, key, 'S'), value)
}

func appendCount(dst []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey(dst, fieldCount, 'l'), n)
}

// endLong stores the number of bytes after start+4 in the four octets at start.
func endLong(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// decimal converts an expiration to the form in which RabbitMQ writes the parsed number: without a sign, because it cannot be
// negative, and without leading zeros.
func decimal(expiration []byte) []byte {
	for len(expiration) > 1 && (expiration[0] == '0' || expiration[0] == '+' || expiration[0] == '-') {
		expiration = expiration[1:]
	}
	return expiration
}
