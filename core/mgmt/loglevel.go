package mgmt

import (
	"log/slog"
	"math"
	"slices"
	"strings"
)

// logLevels are RabbitMQ's names for levels. The lines of this broker's log have one of the first four.
var logLevels = []struct {
	name  string
	level slog.Level
}{
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warning", slog.LevelWarn},
	{"error", slog.LevelError},
	{"critical", slog.LevelError + 4},
	{"none", math.MaxInt},
}

// logLevel returns RabbitMQ's name for the least level that is logged.
func (a *API) logLevel() any {
	if a.LogLevel == nil {
		return nil
	}
	for _, l := range logLevels {
		if a.LogLevel.Level() <= l.level {
			return l.name
		}
	}
	return nil
}

// setLogLevel sets the least level that is logged, until the configuration is read again: {"level": its name}.
func (a *API) setLogLevel(c *request) error {
	r := c.body()
	r.Only("level")
	r.Need("level")
	name := r.Text("level")
	if err := r.Err(); err != nil {
		return err
	}
	if name == "warn" {
		name = "warning" // as in the configuration
	}
	names := make([]string, len(logLevels))
	for i, l := range logLevels {
		names[i] = l.name
	}
	i := slices.Index(names, name)
	switch {
	case a.LogLevel == nil:
		return errNotFound
	case i < 0:
		return badRequest("level %.40s is not supported. Try one of %s", name, strings.Join(names, ", "))
	}
	said := a.Log.Enabled(c.r.Context(), slog.LevelInfo)
	if said {
		a.Log.Info("the log level is set", "level", name, "user", c.user.Name)
	}
	a.LogLevel.Set(logLevels[i].level)
	if !said {
		a.Log.Info("the log level is set", "level", name, "user", c.user.Name)
	}
	return c.done(nil)
}
