# A publisher and a consumer that outlive the nodes of a cluster, with bunny. Arguments: a queue, and the URL of each node.
require "bunny"
require "uri"

name, *urls = ARGV
$stdout.sync = true
nodes = urls.map { |url| URI(url) }
options = {
  addresses: nodes.map { |node| "#{node.host}:#{node.port}" }, username: nodes[0].user, password: nodes[0].password,
  heartbeat: 10, connection_timeout: 20, read_timeout: 20, continuation_timeout: 20_000, network_recovery_interval: 0.5, # s, s, s, ms, s
  log_file: $stderr, session_error_handler: Thread.new { sleep }, # errors of the library's threads end none of this program's
}

# The first connection is not recovered: it is tried again.
def connect(options)
  connection = Bunny.new(options)
  connection.start
rescue Bunny::Exception, SystemCallError, Timeout::Error => e
  warn "connect: #{e.inspect}"
  sleep 0.5
  retry
end

consumer = connect(options).create_channel
consumer.prefetch(100)
consumer.queue(name, durable: true).subscribe(manual_ack: true) do |delivery, _, body|
  puts "received #{body}"
  begin
    consumer.ack(delivery.delivery_tag)
  rescue Bunny::Exception, SystemCallError => e
    warn "ack: #{e.inspect}" # it is delivered again
  end
end

# wait_for_confirms returns true after a recovery, too, which forgets what was not confirmed. So this program counts itself. And it does not
# publish while the library recovers: the channel may not be open yet, for which brokers close the connection.
answers = Queue.new
lost = false
channel = connect(options.merge(
  recovery_attempt_started: -> { lost = true },
  recovery_completed: -> { lost = false; answers << :recovered },
)).create_channel
channel.confirm_select(->(tag, multiple, nack) { answers << [tag, nack] })
channel.queue(name, durable: true)

stopping = false
published = 0
publisher = Thread.new do
  until stopping
    answer = nil
    begin
      answer = answers.pop until answer == :recovered if lost
      tag = channel.next_publish_seq_no
      channel.default_exchange.publish(published.to_s, routing_key: name, persistent: true)
      answer = answers.pop
      answer = answers.pop until answer == :recovered || answer[0] >= tag
    rescue Bunny::Exception, SystemCallError => e
      warn "publish: #{e.inspect}"
      sleep 0.2
      next
    end
    next if answer == :recovered || answer[1]
    puts "confirmed #{published}"
    published += 1
    sleep 0.02
  end
end

$stdin.read
stopping = true
publisher.join
puts "published #{published}"
sleep # the consumer goes on until the program is killed
