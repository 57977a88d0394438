# A client of allora's HTTP API: a worker, and an editor of schedules. The standard library is all it needs.
require "json"
require "net/http"
require "securerandom"
require "uri"

module Allora
  # An answer of 4xx. The same request would be refused again, so it is never repeated.
  class Refused < StandardError
    attr_reader :status, :problem

    def initialize(status, problem)
      super("#{status}: #{problem["detail"]} #{problem["remedy"]}")
      @status, @problem = status, problem
    end
  end

  # No answer, or one of 5xx: nobody knows whether the request has taken effect.
  class Unknown < StandardError; end

  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Sends requests to the first of these gateways that answers.
  class Client
    def initialize(gateways, token: nil)
      @gateways, @token = gateways, token
    end

    # One request. Returns the value of the answer, and its headers.
    def send_to(gateway, method, path, body: nil, query: {}, headers: {}, timeout: 30)
      uri = URI("#{gateway}/v1#{path}?#{URI.encode_www_form(query)}")
      request = Net::HTTP.const_get(method.capitalize).new(uri, headers)
      request["Content-Type"] = "application/json"
      request["Authorization"] = "Bearer #{@token}" if @token
      request.body = JSON.generate(body) unless body.nil?
      options = { use_ssl: uri.scheme == "https", open_timeout: timeout, read_timeout: timeout, max_retries: 0 }
      answer = Net::HTTP.start(uri.host, uri.port, **options) { |http| http.request(request) }
      status, text = answer.code.to_i, answer.body.to_s
      raise Unknown, "#{gateway} answered #{status}" if status >= 500
      value = answer["Content-Type"].to_s.include?("json") ? JSON.parse(text) : nil
      raise Refused.new(status, value || {}) if status >= 400
      [value, answer]
    rescue SystemCallError, IOError, SocketError, Timeout::Error, Net::ProtocolError, JSON::ParserError => error
      raise Unknown, "#{gateway}: #{error.message}"
    end

    # Repeats the same request at these gateways by turns, for so long.
    def ask(method, path, at: @gateways, seconds: 30, **more)
      finish = Allora.now + seconds
      at.cycle do |gateway|
        return send_to(gateway, method, path, **more)
      rescue Unknown
        raise if Allora.now > finish
        sleep 0.2
      end
    end
  end

  # Edits schedules. If an answer was lost, what a repetition is refused for may be the change itself.
  class Schedules < Client
    def add(schedule) = ask("POST", "/jobs", body: schedule)[0]

    def list(**filters)
      return enum_for(:list, **filters) unless block_given?
      page = {}
      loop do
        answer = ask("GET", "/jobs", query: filters.merge(page))[0]
        answer["items"].each { |job| yield job }
        break unless answer["next"]
        page = { page: answer["next"] }
      end
    end

    # The definition, and the tag with which it can be replaced.
    def get(name)
      definition, headers = ask("GET", "/job/definition", query: { name: })
      [definition, headers["ETag"]]
    end

    # Replaces the definition if it still has this tag; Refused with 412 if it has changed.
    def put(name, definition, tag)
      ask("PUT", "/job/definition", body: definition, query: { name: }, headers: { "If-Match" => tag })[0]
    end

    def pause(name, note: "") = ask("POST", "/job/pause", body: { note: }, query: { name: })[0]

    def resume(name) = ask("POST", "/job/resume", body: {}, query: { name: })[0]

    # Runs the job now, once for each id.
    def trigger(name, id: SecureRandom.uuid) = ask("POST", "/job/trigger", body: { id: }, query: { name: })[0]

    def delete(name) = ask("DELETE", "/job", query: { name: })[0]
  end

  # A run of this worker. Its code looks at `stop?` from time to time, and ends when that is true.
  class Run
    attr_reader :gateway, :fields, :token, :lease
    attr_accessor :until, :lost, :stop

    def initialize(gateway, fields)
      @gateway, @fields, @token = gateway, fields, fields["token"]
      @lease, @until, @lost, @stop = fields["lease_ms"] / 1000.0, 0.0, false, false
    end

    def stop? = @stop

    def [](field) = @fields[field.to_s]
  end

  # Calls the block for each run of these kinds, at most `max` at a time. What it returns is the output of the run, and
  # an exception is its failure.
  class Worker < Client
    def initialize(gateways, kinds, max: 10, token: nil, name: "ruby", &handle)
      super(gateways, token:)
      @kinds, @max, @name, @handle, @turn = kinds, max, name, handle, 0
      @runs, @lock, @free, @ended = {}, Mutex.new, ConditionVariable.new, false
    end

    def stop = @ended = true

    # Works until `stop` is called, and what was begun is done.
    def run
      keeper, threads = Thread.new { keep }, []
      until @ended
        @lock.synchronize { @free.wait(@lock) while @runs.size >= @max }
        threads = threads.select(&:alive?) + claim(@max - @runs.size).map { |run| Thread.new { work(run) } }
      end
      threads.each(&:join)
      keeper.kill
    end

    private

    def claim(room)
      body = { worker: @name, kinds: @kinds, max: room, wait_ms: 10_000, claim_id: SecureRandom.uuid }
      gateway, tries = @gateways[@turn % @gateways.size], 0
      begin
        answer, = send_to(gateway, "POST", "/claims", body:, timeout: 20)
      rescue Unknown
        sleep 0.2
        # If the answer was lost, the same id gets the same runs, at this gateway alone.
        retry if (tries += 1) < 2
        @turn += 1
        return []
      end
      runs = (answer || { "runs" => [] })["runs"].map { |fields| Run.new(gateway, fields) }
      # The lease counts from the sending of an accepted heartbeat: who knows how long the answer took.
      beat(gateway, runs)
      runs.select! { |run| run.until > Allora.now && !run.stop? }
      @lock.synchronize { runs.each { |run| @runs[run.token] = run } }
      runs
    end

    def work(run)
      begin
        path, body = "/claim/complete", { output: @handle.call(run) }
      rescue StandardError => error
        path, body = "/claim/fail", { error: error.message }
      end
      # Any gateway takes a completion, by its fence; only the one that gave the run takes a failure.
      at = body.key?(:error) ? [run.gateway] : [run.gateway, *@gateways]
      ask("POST", path, at:, seconds: 60, body: { token: run.token, **body }) unless run.lost
    rescue Refused, Unknown
      nil # Another attempt has taken its place, or will do so.
    ensure
      @lock.synchronize do
        @runs.delete(run.token)
        @free.broadcast
      end
    end

    # Sends a heartbeat after a third of the lease, and stops the runs whose lease is over.
    def keep
      beats = Hash.new(Allora.now)
      loop do
        sleep 0.1
        now, runs = Allora.now, @lock.synchronize { @runs.values }
        runs.each { |run| run.stop = true if now >= run.until }
        runs.reject { |run| run.lost || now >= run.until }.group_by(&:gateway).each do |gateway, those|
          next if now - beats[gateway] < those.map(&:lease).min / 3
          beats[gateway] = now
          Thread.new { beat(gateway, those) }
        end
      end
    end

    def beat(gateway, runs)
      return if runs.empty?
      sent, by_token = Allora.now, runs.to_h { |run| [run.token, run] }
      body = { tokens: by_token.keys }
      answer, = send_to(gateway, "POST", "/claim/heartbeat", body:, timeout: runs[0].lease / 3)
      answer["runs"].each do |told|
        run, state = by_token[told["token"]], told["state"]
        run.until = [run.until, sent + told["lease_ms"] / 1000.0].max if %w[ok cancel].include?(state)
        run.lost = true if state == "lost"
        run.stop = true if %w[cancel lost].include?(state)
      end
    rescue Refused, Unknown
      nil # Unknown is not lost: the runs go on until their lease is over.
    end
  end
end
