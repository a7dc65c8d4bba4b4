// Package broker assembles a broker from a configuration: the data directory, the AMQP server, the management API and, in a cluster, the
// links to the other nodes. It starts them, stops them and applies a changed configuration. Command lines, signals and service managers are
// in cmd/curfew/app.
package broker
