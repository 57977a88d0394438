# A worker, or an editor, by the client for Ruby: what tests start. The worker writes when each run begins and when its
# work is done, as lines of JSON.
require "time"
require File.join(ARGV[0], "allora_client")

GATEWAYS, TOKEN = ARGV[2].split(","), ENV["TOKEN"]

def work(kind, most, path)
  log = File.open(path, File::WRONLY | File::APPEND | File::CREAT)
  write = lambda do |run, what|
    occurrence = (Time.iso8601(run[:scheduled_at]).to_r * 1000).round
    line = { job: run[:name], node: Process.pid.to_s, at: (Time.now.to_r * 1000).floor, what: }
    log.syswrite("#{JSON.generate({ **line, occurrence:, fence: run[:fence] })}\n")
  end
  worker = Allora::Worker.new(GATEWAYS, [kind], max: most.to_i, token: TOKEN) do |run|
    write.call(run, "start")
    finish = Allora.now + run[:data]["seconds"]
    sleep 0.02 until run.stop? || Allora.now >= finish
    write.call(run, run.stop? ? "stopped" : "done")
    raise "it was told to stop" if run.stop?
    "attempt #{run[:attempt]}"
  end
  worker.run
end

def edit
  schedules = Allora::Schedules.new(GATEWAYS, token: TOKEN)
  5.times { |i| schedules.add({ name: "edited/#{i}", kind: "nobody", schedule: "@daily", data: { i: } }) }
  puts "listed #{schedules.list(prefix: "edited/", limit: 2).count}"
  definition, tag = schedules.get("edited/0")
  schedules.put("edited/0", { **definition, "schedule" => "@hourly" }, tag)
  begin
    schedules.put("edited/0", definition, tag)
  rescue Allora::Refused => refused
    puts "stale #{refused.status}"
  end
  schedules.pause("edited/1", note: "for a while")
  schedules.resume("edited/1")
  2.times { schedules.trigger("edited/0", id: "once") }
  schedules.delete("edited/2")
  puts "left #{schedules.list(prefix: "edited/").map { |job| job["name"] }.join(" ")}"
end

ARGV[1] == "work" ? work(*ARGV[3..]) : edit
