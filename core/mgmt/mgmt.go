// Package mgmt answers the management HTTP API in RabbitMQ's shapes.
//
// So far it has what needs no login: GET /health for load balancers and
// GET /version. Everything else is RabbitMQ's 404.
package mgmt

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"
)

// Options are what the API tells of its broker.
type Options struct {
	Product, Version string
	// Alarms returns what keeps the broker from taking messages, an empty slice
	// when all is well. It is called from many goroutines.
	Alarms func() []string
}

// Handler returns the API.
func Handler(o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case reads && r.URL.Path == "/health":
			health(w, o.Alarms())
		case reads && r.URL.Path == "/version":
			reply(w, http.StatusOK, versionReply{Product: o.Product, Version: o.Version})
		default:
			reply(w, http.StatusNotFound, errorReply{Error: "Object Not Found", Reason: "Not Found"})
		}
	})
}

type healthReply struct {
	Status string   `json:"status"`
	Alarms []string `json:"alarms,omitempty"`
}

type versionReply struct {
	Product string `json:"product"`
	Version string `json:"version"`
}

// errorReply is the body of every RabbitMQ error.
type errorReply struct {
	Error  string `json:"error"`
	Reason string `json:"reason"`
}

func health(w http.ResponseWriter, alarms []string) {
	if len(alarms) == 0 {
		reply(w, http.StatusOK, healthReply{Status: "ok"})
		return
	}
	reply(w, http.StatusServiceUnavailable, healthReply{Status: "alarm", Alarms: alarms})
}

func reply(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // every reply is a struct of strings
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone; the server notices
}

// Server returns a server for h whose limits no slow or hostile client can
// stretch. Its own complaints go to log.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
