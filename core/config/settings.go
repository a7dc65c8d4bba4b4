package config

import "strings"

// setting is one key: its meaning, its value, and the source that set it last.
type setting struct {
	key    string
	value  *value
	doc    string // for the operator, one sentence
	live   bool   // a reload applies it; the others need a restart
	source Source
}

// envName returns the environment variable that sets key.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "__", "-", "_").Replace(key))
}

const envPrefix = "CURFEW_"
