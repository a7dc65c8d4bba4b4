package amqp

// beforeMessageID has the sizes of the properties that precede the message id, in order: 0 is a short string, -1 a table.
var beforeMessageID = [PropMessageID]int{
	PropHeaders: -1, PropDeliveryMode: 1, PropPriority: 1,
}

// MessageID returns the message id of raw properties that were checked before. It is cheaper than [ScanProps], especially with long
// headers.
func MessageID(props []byte) (id []byte, ok bool) {
	at := find(props, PropMessageID)
	if at < 0 || at+1+int(props[at]) > len(props) {
		return nil, false
	}
	return props[at+1 : at+1+int(props[at])], true
}

// Priority returns the priority of raw properties that were checked before; 0 = none. It is cheaper than [ScanProps].
func Priority(props []byte) uint8 {
	at := find(props, PropPriority)
	if at < 0 {
		return 0
	}
	return props[at]
}

// find returns where a property begins; negative = it is absent. The property must not come after the message id.
func find(props []byte, wanted Property) int {
	if len(props) < 2 || be16(props)&wanted.Flag() == 0 {
		return -1
	}
	flags, at := be16(props), 2
	for p, size := range beforeMessageID[:wanted] {
		if flags&Property(p).Flag() == 0 {
			continue
		}
		switch {
		case size > 0:
			at += size
		case size == 0 && at < len(props):
			at += 1 + int(props[at])
		case size < 0 && at+4 <= len(props):
			at += 4 + int(be32(props[at:]))
		default:
			return -1
		}
	}
	if at >= len(props) {
		return -1
	}
	return at
}
