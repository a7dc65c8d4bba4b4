package rabbit

// Product and Version are the product whose protocol and API the broker has. Clients read them before they use what came later.
const (
	Product = "RabbitMQ"
	Version = "3.13.7"
)
