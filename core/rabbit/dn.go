package rabbit

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// Attribute is one part of a distinguished name, such as the organisation.
type Attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// rdnSET is a part of a name with one or more attributes. Package asn1 treats types whose name ends in SET as sets.
type rdnSET []Attribute

// CommonName is the type of the attribute CN.
var CommonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// attributeNames are RabbitMQ's names of attributes. Others are printed as numbers.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "SERIALNUMBER", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O",
	"2.5.4.11": "OU", "2.5.4.12": "TITLE", "2.5.4.42": "GIVENNAME", "2.5.4.43": "INITIALS", "2.5.4.44": "GENERATIONQUALIFIER",
	"2.5.4.65": "PSEUDONYM", "1.2.840.113549.1.9.1": "EMAILADDRESS",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

// Attributes returns the attributes of a distinguished name in DER, in their order.
func Attributes(der []byte) ([]Attribute, error) {
	name, err := parseName(der)
	return slices.Concat(name...), err
}

func parseName(der []byte) ([][]Attribute, error) {
	var parts []rdnSET
	rest, err := asn1.Unmarshal(der, &parts)
	if err == nil && len(rest) > 0 {
		err = errors.New("there is data after it")
	}
	if err != nil {
		return nil, fmt.Errorf("not a distinguished name: %w", err)
	}
	name := make([][]Attribute, len(parts))
	for i, p := range parts {
		name[i] = p
	}
	return name, nil
}

// DistinguishedName prints a distinguished name in DER as RabbitMQ does, which is nearly [RFC 4514]: the last part comes first, and
// characters other than printable ASCII are escaped byte by byte, as is the tilde.
func DistinguishedName(der []byte) (string, error) {
	name, err := parseName(der)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, part := range slices.Backward(name) {
		for j, a := range part {
			if j > 0 {
				b.WriteByte('+')
			}
			number := a.Type.String()
			if known := attributeNames[number]; known != "" {
				number = known
			}
			b.WriteString(number)
			b.WriteByte('=')
			escape(&b, a.Text())
		}
		if i > 0 {
			b.WriteByte(',')
		}
	}
	return b.String(), nil
}

// Text returns the value of an attribute, in UTF-8 unless it is invalid in its own encoding.
func (a *Attribute) Text() string { return DecodeString(&a.Value) }

// DecodeString returns the text of an ASN.1 string of any type. For a value that is not a string, it returns the encoding in
// hexadecimal digits after a number sign [RFC 4514 2.4].
func DecodeString(v *asn1.RawValue) string {
	const t61, bmp = 20, 30
	switch v.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagNumericString:
		return string(v.Bytes)
	case t61: // in practice always Latin-1
		runes := make([]rune, len(v.Bytes))
		for i, c := range v.Bytes {
			runes[i] = rune(c)
		}
		return string(runes)
	case bmp:
		units := make([]uint16, len(v.Bytes)/2)
		for i := range units {
			units[i] = uint16(v.Bytes[2*i])<<8 | uint16(v.Bytes[2*i+1])
		}
		return string(utf16.Decode(units))
	}
	return "#" + hex.EncodeToString(v.FullBytes)
}

func escape(b *strings.Builder, s string) {
	for i := range len(s) {
		c := s[i]
		switch {
		case i == 0 && (c == ' ' || c == '#'), i == len(s)-1 && c == ' ', strings.IndexByte(`"+,;<>\`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= '~':
			fmt.Fprintf(b, `\%02X`, c)
		default:
			b.WriteByte(c)
		}
	}
}
