module example.com/carousel

go 1.26.0

require github.com/curfewmq/curfew v0.0.0

// For tests of this module alone. Whoever builds a broker with it says where curfew comes from.
replace github.com/curfewmq/curfew => ../../../..
