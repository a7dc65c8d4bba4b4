package rabbit

import (
	"encoding/asn1"
	"encoding/hex"
	"strings"
	"testing"
)

// The names are from certificates made by OpenSSL; the texts are the user names that RabbitMQ 3.10 made of them.
func TestDistinguishedNames(t *testing.T) {
	for _, c := range []struct{ der, want string }{
		{"300e310c300a06035504030c03617070", "CN=app"},
		{
			"3054310b30090603550406130244453110300e06035504080c0742617661726961310f300d06035504070c064d756e69636831163014060355040a0c0d4578616d706c652c20496e632e310a3008060355040b0c0141",
			`OU=A,O=Example\, Inc.,L=Munich,ST=Bavaria,C=DE`,
		},
		{
			"306c31133011060a0992268993f22c6401191603636f6d31173015060a0992268993f22c64011916076578616d706c6531123010060a0992268993f22c6401010c027531311c301a06092a864886f70d010901160d61406578616d706c652e636f6d310a300806035504030c0178",
			"CN=x,EMAILADDRESS=a@example.com,UID=u1,DC=example,DC=com",
		},
		{
			"302b3110300e060355040a0c074772c3bcc39f653117301506035504030c0e4ac3bc7267656e20e697a5e69cac",
			`CN=J\C3\BCrgen \E6\97\A5\E6\9C\AC,O=Gr\C3\BC\C3\9Fe`,
		},
		{
			"3036310d300b060355040a0c0461636d653125300806035504030c01613008060355040b0c0162300f060a0992268993f22c6401010c0163",
			"CN=a+OU=b+UID=c,O=acme",
		},
		{
			"304231193017060355040a0c10206c65616420616e6420747261696c203125302306035504030c1c23686173682271756f74653c3e3b5c6261636b3d65717e74696c6465",
			`CN=\#hash\"quote\<\>\;\\back=eq\7Etilde,O=\ lead and trail\ `,
		},
		{"3021310e300c06035504030c056669727374310f300d06035504030c067365636f6e64", "CN=second,CN=first"},
		{
			"3081b4310c300a06035504040c03537572310e300c060355042a0c05476976656e310a3008060355042b0c0149310b3009060355042c0c024a72310a3008060355040c0c0154310b3009060355040513023132310a300806035504410c0150310a300806035504090c0153310a3008060355042e130151310b3009060355040f0c024243310c300a06035504110c03313233310a3008060355040d0c0164310b300906035504290c026e6d310a300806035504030c016d",
			"CN=m,2.5.4.41=nm,2.5.4.13=d,2.5.4.17=123,2.5.4.15=BC,2.5.4.46=Q,2.5.4.9=S,PSEUDONYM=P,SERIALNUMBER=12,TITLE=T,GENERATIONQUALIFIER=Jr,INITIALS=I,GIVENNAME=Given,SN=Sur",
		},
		{"30143112301006035504030c0974616209686572657f", `CN=tab\09here\7F`},
		{"3000", ""},
	} {
		der, err := hex.DecodeString(c.der)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DistinguishedName(der); got != c.want || err != nil {
			t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
		}
	}
}

func TestNotADistinguishedName(t *testing.T) {
	for _, der := range []string{"", "30", "3001", "040100", "30003000", "300e310c300a06035504030c0361", strings.Repeat("30", 100)} {
		b, err := hex.DecodeString(der)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DistinguishedName(b); err == nil || got != "" {
			t.Errorf("%s: %q, %v", der, got, err)
		}
	}
}

func TestDecodeString(t *testing.T) {
	for _, c := range []struct {
		tag   int
		bytes string
		want  string
	}{
		{asn1.TagUTF8String, "grün", "grün"},
		{20, "gr\xfcn", "grün"},
		{30, "\x00g\xd8\x3d\xde\x00", "g😀"},
		{30, "\x00g\x00", "g"}, // half a character more
		{asn1.TagOctetString, "ab", "#6162"},
	} {
		v := asn1.RawValue{Tag: c.tag, Bytes: []byte(c.bytes), FullBytes: []byte(c.bytes)}
		if got := DecodeString(&v); got != c.want {
			t.Errorf("%d %q: got %q", c.tag, c.bytes, got)
		}
	}
}
