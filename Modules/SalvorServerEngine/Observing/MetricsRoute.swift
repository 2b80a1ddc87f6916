import SalvorModel
import SalvorStorage
import SalvorWire

extension ServerEngine {
  func metricsText() async throws -> String {
    let stats = try await configuration.store.stats()
    var out = MetricsText()
    countSyncs(&out)
    out.labelled(
      "salvor_http_answers_total", "counter", "Answers, by route, method and status", metrics.answers.values)
    out.histogram(
      "salvor_http_request_duration_seconds", "From a request's head to the end of its answer, by route",
      metrics.durations)
    out.histogram("salvor_http_request_size_bytes", "Bodies received, as sent, by route", metrics.requestBytes)
    out.histogram("salvor_http_response_size_bytes", "Bodies answered, as sent, by route", metrics.responseBytes)
    out.histogram(
      "salvor_upload_processing_duration_seconds", "Waiting for and processing one upload in the database",
      metrics.processing)
    out.counter("salvor_slow_total", "Answers and uploads that took longer than slowMilliseconds", metrics.slow.value)

    let recovering = try await recoveries.counts
    out.gauge("salvor_sessions", "Sessions under way", Int64(try await sessions.count))
    out.gauge("salvor_recoveries", "Remote IDs that recover", Int64(recovering.underWay))
    out.gauge(
      "salvor_recoveries_waiting", "Remote IDs that were told to come back to recover", Int64(recovering.waiting))
    out.gauge("salvor_event_listeners", "Streams of events", Int64(events.count))
    out.gauge("salvor_remotes", "Remote IDs known", stats.remotes)
    out.gauge("salvor_head_commit", "Number of the newest commit", stats.head.number)
    out.gauge("salvor_log_entries", "Entries of the change log", stats.logEntries)
    out.gauge("salvor_conflicts_open", "Conflict versions that nobody has resolved", stats.openConflicts)
    out.gauge("salvor_staged_bytes", "Bytes in staging", stats.stagedBytes)
    out.gauge("salvor_writers_waiting", "Requests that wait for their turn to write", Int64(turns.count))
    out.gauge(
      "salvor_writer_busy_seconds", "How long the turn to write that is under way has lasted; 0 where there is none",
      turns.busySeconds)
    if let store = configuration.store as? any ObservableServerStore {
      (await store.observation()).write(to: &out, now: configuration.clock.now())
    }
    if let shelf { await observe(shelf, &out) }
    out.gauge(
      "salvor_restored", "1 where the database was found restored from a copy since this start",
      identity.isRestored ? Int64(1) : 0)
    await observeRestores(&out)
    if let traces = configuration.traces?.counts {
      out.counter("salvor_trace_spans_exported_total", "Spans that the collector of traces took", traces.exported)
      out.counter(
        "salvor_trace_spans_dropped_total", "Spans that it did not take, or that there was no room for", traces.dropped)
    }
    observeProcess(&out)
    return out.text
  }

  private func observe(_ shelf: SnapshotShelf, _ out: inout MetricsText) async {
    let facts = await shelf.facts
    out.gauge("salvor_snapshots", "Snapshots that are kept", facts.count)
    out.gauge("salvor_snapshot_bytes", "Bytes of the snapshots that are kept", facts.bytes)
    out.counter("salvor_snapshots_offered_total", "Snapshots named in answers", metrics.snapshotsOffered.value)
    out.counter("salvor_snapshots_made_total", "Snapshots made", metrics.snapshotsMade.value)
    out.counter("salvor_snapshot_failures_total", "Snapshots that could not be made", metrics.snapshotFailures.value)
    out.single(
      "salvor_snapshot_making_seconds_total", "counter", "Time spent making snapshots",
      "\(Double(metrics.snapshotMilliseconds.value) / 1000)")
    out.counter("salvor_snapshots_sent_total", "Answers with a snapshot or a part of it", metrics.snapshotsSent.value)
    out.counter("salvor_snapshot_sent_bytes_total", "Bytes of snapshots sent", metrics.snapshotBytesSent.value)
  }

  private func countSyncs(_ out: inout MetricsText) {
    out.counter("salvor_requests_total", "Requests received", metrics.requests.value)
    out.counter("salvor_problems_total", "Requests answered with a problem", metrics.problems.value)
    out.labelled(
      "salvor_problems_by_code_total", "counter", "Requests answered with a problem, by its code",
      metrics.problemsByCode.values)
    out.counter("salvor_logins_refused_total", "Requests whose credential was refused", metrics.loginsRefused.value)
    out.counter("salvor_registrations_total", "Remote IDs registered", metrics.registrations.value)
    out.counter("salvor_uploads_total", "Uploads processed", metrics.uploads.value)
    out.counter(
      "salvor_requests_accepted_total", "Requests of uploads that were accepted", metrics.accepted.value)
    out.counter("salvor_requests_refused_total", "Requests of uploads that were refused", metrics.refused.value)
    out.labelled(
      "salvor_refusals_total", "counter", "Requests of uploads that were refused, by reason",
      metrics.refusedByReason.values)
    out.counter(
      "salvor_validations_total", "Batches of requests that validators were asked about", metrics.validations.value)
    out.counter(
      "salvor_validation_failures_total", "Batches that a validator could not judge", metrics.validationFailures.value)
    out.counter("salvor_downloads_total", "Downloads begun", metrics.downloads.value)
    out.counter("salvor_resets_total", "Begins refused with a reason for recovery", metrics.resets.value)
    out.labelled(
      "salvor_resets_by_reason_total", "counter", "Begins refused with a reason for recovery, by reason",
      metrics.resetsByReason.values)
    out.counter("salvor_rewinds_total", "Begins refused with a commit to rewind to", metrics.rewinds.value)
    out.labelled(
      "salvor_recoveries_total", "counter", "Recoveries begun, by reason",
      Dictionary(uniqueKeysWithValues: metrics.recoveries.map { (MetricsText.label("reason", $0.key), $0.value) }))
    out.counter("salvor_recoveries_ended_total", "Recoveries that came to their end", metrics.recoveriesEnded.value)
    out.labelled(
      "salvor_recoveries_ended_by_strategy_total", "counter",
      "Recoveries that came to their end, by reason and by the strategy that the device said",
      metrics.recoveriesByStrategy.values)
    out.counter(
      "salvor_event_rounds_total", "Changes that listeners were told of, all together", events.rounds.value)
    out.labelled(
      "salvor_administration_acts_total", "counter", "Acts of operators over HTTP, by act and result",
      metrics.administrationActs.values)
  }

  private func observeProcess(_ out: inout MetricsText) {
    out.labelled(
      "salvor_build_info", "gauge", "Which release this is, and which version of the protocol it speaks",
      [
        "\(MetricsText.label("version", salvorVersion)),\(MetricsText.label("protocol", "\(protocolVersion)"))": 1
      ])
    guard let facts = configuration.processFacts?() else { return }
    out.single("process_cpu_seconds_total", "counter", "Processor time used", "\(facts.cpuSeconds)")
    out.gauge("process_resident_memory_bytes", "Memory held", facts.residentBytes)
    out.gauge("process_open_fds", "Open files and connections", facts.openFiles)
    out.gauge("process_max_fds", "Open files and connections allowed", facts.openFilesMax)
    out.gauge("process_start_time_seconds", "When the process began, in seconds since 1970", facts.startedAt)
  }
}

extension StorageObservation {
  fileprivate func write(to out: inout MetricsText, now: Int64) {
    func age(_ time: Int64) -> Double { Double(max(0, now - time)) / 1000 }
    if let databaseBytes { out.gauge("salvor_storage_bytes", "Size of the database's file", databaseBytes) }
    if let journalBytes {
      out.gauge("salvor_storage_journal_bytes", "Size of the write-ahead log beside it", journalBytes)
    }
    if let freeBytes { out.gauge("salvor_storage_free_bytes", "Room left where the database stands", freeBytes) }
    if let oldestLogEntry {
      out.gauge("salvor_log_age_seconds", "Age of the oldest entry of the change log", age(oldestLogEntry))
    }
    if let oldestTombstone {
      out.gauge("salvor_tombstone_age_seconds", "Age of the oldest tombstone", age(oldestTombstone))
    }
    guard let replica else { return }
    out.counter("salvor_replica_answers_total", "Questions that the read replica answered", replica.answers)
    out.counter("salvor_replica_behind_total", "Questions that it had not replayed enough for", replica.behind)
    out.counter("salvor_replica_failures_total", "Questions at which it failed", replica.failures)
  }
}
