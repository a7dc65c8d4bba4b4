package rabbit

// Product and Version identify the product whose protocol and API the broker has. Clients check them before they use later features.
const (
	Product = "RabbitMQ"
	Version = "3.13.7"
)
