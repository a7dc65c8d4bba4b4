// Package broker assembles a broker from a configuration: the data directory, the AMQP server, the management API and, in a cluster, the
// links to the other nodes. It knows how they start, stop and follow a changed configuration, and nothing of command lines, signals and
// service managers, which are in cmd/curfew/app.
package broker
