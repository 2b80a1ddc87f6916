#if HTTPClient && !canImport(Darwin)
  import CCurl
  import Glibc
  import SalvorModel

  private let isCurlReady = ccurl_global_init() == CURLE_OK

  /// The thread that drives libcurl's multi handle. It starts with the first transfer and ends with `close`.
  final class CurlDriver: @unchecked Sendable {
    enum Command: Sendable {
      case start(CurlTransfer)
      case cancel(CurlTransfer)
      case resume(CurlTransfer)
    }

    private struct State {
      var commands: [Command] = []
      var isRunning = false
      var isClosing = false
      /// The multi handle is gone.
      var isEnded = false
      var closers: [CheckedContinuation<Void, Never>] = []
    }

    let responseBytesMax: Int
    private let options: HTTPClientOptions
    private let multi: UnsafeMutableRawPointer
    private let state = Mutex(State())

    // The thread only.
    private var transfers: [UnsafeMutableRawPointer: CurlTransfer] = [:]
    private var touched: [CurlTransfer] = []
    private var spareHandles: [UnsafeMutableRawPointer] = []

    init(_ options: HTTPClientOptions, responseBytesMax: Int) throws {
      guard isCurlReady, let multi = curl_multi_init() else {
        throw SalvorError(.failed, "libcurl could not be set up. Check its installation.")
      }
      self.options = options
      self.responseBytesMax = responseBytesMax
      self.multi = multi
      _ = ccurl_multi_set_long(multi, CURLMOPT_MAXCONNECTS, 16)
    }

    deinit {
      // Not ended: the thread, which owns a reference, never ran.
      if !state.withLock({ $0.isEnded }) { curl_multi_cleanup(multi) }
    }

    // MARK: Any thread

    func submit(_ command: Command) {
      let (refused, needsThread) = state.withLock { state -> (Bool, Bool) in
        if state.isEnded || state.isClosing { return (true, false) }
        if !state.isRunning {
          // Nothing to cancel or resume before the first start.
          guard case .start = command else { return (false, false) }
          state.isRunning = true
          state.commands.append(command)
          return (false, true)
        }
        state.commands.append(command)
        // Under the lock: the handle cannot be cleaned up meanwhile. One wake-up is enough for all that is waiting.
        if state.commands.count == 1 { curl_multi_wakeup(multi) }
        return (false, false)
      }
      if refused, case .start(let transfer) = command { transfer.fail(Self.closed) }
      if needsThread, !startThread() {
        state.withLock { $0.isRunning = false }
        if case .start(let transfer) = command {
          transfer.fail(SalvorError(.failed, "No thread could be started. Look at the limits of this process."))
        }
      }
    }

    static let closed = SalvorError(.cancelled, "The HTTP transport was closed.")

    func requestClose() {
      state.withLock { state in
        guard !state.isClosing else { return }
        state.isClosing = true
        if state.isRunning { curl_multi_wakeup(multi) }
      }
    }

    func close() async {
      requestClose()
      await withCheckedContinuation { continuation in
        let isOver = state.withLock { state in
          if state.isEnded || !state.isRunning { return true }
          state.closers.append(continuation)
          return false
        }
        if isOver { continuation.resume() }
      }
    }

    private func startThread() -> Bool {
      var thread = pthread_t()
      let this = Unmanaged.passRetained(self)
      guard pthread_create(&thread, nil, runCurlDriver, this.toOpaque()) == 0 else {
        this.release()
        return false
      }
      pthread_detach(thread)
      return true
    }

    // MARK: The thread

    func run() {
      while true {
        let (commands, isClosing) = state.withLock { state in
          defer { state.commands = [] }
          return (state.commands, state.isClosing)
        }
        for command in commands { obey(command) }
        if isClosing { break }
        var running: Int32 = 0
        curl_multi_perform(multi, &running)
        var left: Int32 = 0
        while let message = curl_multi_info_read(multi, &left) {
          if message.pointee.msg == CURLMSG_DONE { end(message.pointee.easy_handle, ccurl_message_result(message)) }
        }
        flushTouched()
        curl_multi_poll(multi, nil, 0, transfers.isEmpty ? 60_000 : 1000, nil)
      }
      for transfer in transfers.values {
        transfer.fail(Self.closed)
        remove(transfer)
      }
      for handle in spareHandles { curl_easy_cleanup(handle) }
      let closers = state.withLock { state in
        state.isEnded = true
        defer { state.closers = [] }
        return state.closers
      }
      curl_multi_cleanup(multi)
      for closer in closers { closer.resume() }
    }

    func touch(_ transfer: CurlTransfer) {
      guard !transfer.isTouched else { return }
      transfer.isTouched = true
      touched.append(transfer)
    }

    private func flushTouched() {
      for transfer in touched {
        transfer.isTouched = false
        transfer.flush()
      }
      touched.removeAll(keepingCapacity: true)
    }

    private func obey(_ command: Command) {
      switch command {
      case .start(let transfer):
        guard let handle = spareHandles.popLast() ?? curl_easy_init() else {
          transfer.fail(SalvorError(.failed, "libcurl could not get memory for a request."))
          return
        }
        transfer.handle = handle
        transfers[handle] = transfer
        configure(handle, transfer)
        let result = curl_multi_add_handle(multi, handle)
        if result != CURLM_OK {
          transfer.fail(SalvorError(.failed, "libcurl cannot take a request (result \(result.rawValue))."))
          remove(transfer)
        }
      case .cancel(let transfer):
        transfer.fail(SalvorError(.cancelled, "The exchange was cancelled."))
        if transfer.handle != nil { remove(transfer) }
      case .resume(let transfer):
        transfer.unpause()
      }
    }

    private func end(_ handle: UnsafeMutableRawPointer?, _ code: CURLcode) {
      guard let handle, let transfer = transfers[handle] else { return }
      transfer.finish(code, label: transfer.server.label)
      remove(transfer)
    }

    /// Takes the handle back. libcurl keeps pointers: the header list is freed after the handle has forgotten it.
    private func remove(_ transfer: CurlTransfer) {
      guard let handle = transfer.handle else { return }
      transfer.handle = nil
      transfers[handle] = nil
      curl_multi_remove_handle(multi, handle)
      curl_easy_reset(handle)
      curl_slist_free_all(transfer.headerList)
      transfer.headerList = nil
      if spareHandles.count < 8 { spareHandles.append(handle) } else { curl_easy_cleanup(handle) }
    }

    private func configure(_ handle: UnsafeMutableRawPointer, _ transfer: CurlTransfer) {
      _ = ccurl_set_string(handle, CURLOPT_URL, transfer.url)
      _ = ccurl_set_string(handle, CURLOPT_PROTOCOLS_STR, transfer.server.isSecure ? "https" : "http")
      _ = ccurl_set_long(handle, CURLOPT_PATH_AS_IS, 1)
      _ = ccurl_set_long(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
      _ = ccurl_set_long(handle, CURLOPT_NOSIGNAL, 1)
      _ = ccurl_set_long(handle, CURLOPT_TCP_KEEPALIVE, 1)
      _ = ccurl_set_long(handle, CURLOPT_BUFFERSIZE, 64 << 10)
      _ = ccurl_set_long(handle, CURLOPT_CONNECTTIMEOUT_MS, Int(options.connectTimeoutMilliseconds))
      _ = ccurl_set_long(handle, CURLOPT_LOW_SPEED_LIMIT, 1)
      _ = ccurl_set_long(handle, CURLOPT_LOW_SPEED_TIME, options.idleTimeoutSeconds)
      // A proxy of the environment gets TLS, never clear text.
      if transfer.server.isLoopback || !transfer.server.isSecure { _ = ccurl_set_string(handle, CURLOPT_PROXY, "") }
      _ = ccurl_set_long(handle, CURLOPT_SSLVERSION, ccurl_tls_min)
      if let caFile = options.caFile { _ = ccurl_set_string(handle, CURLOPT_CAINFO, caFile) }
      ccurl_set_callbacks(
        handle, takeCurlHeader, takeCurlBody, giveCurlBody, Unmanaged.passUnretained(transfer).toOpaque())
      configureBody(handle, transfer)
      configureHeaders(handle, transfer)
    }

    private func configureBody(_ handle: UnsafeMutableRawPointer, _ transfer: CurlTransfer) {
      let method = transfer.method
      switch transfer.body {
      case .none where method == "GET":
        _ = ccurl_set_long(handle, CURLOPT_HTTPGET, 1)
      case .none where method == "HEAD":
        _ = ccurl_set_long(handle, CURLOPT_NOBODY, 1)
      case .none where method == "POST" || method == "PUT" || method == "PATCH":
        // Says `Content-Length: 0`.
        _ = ccurl_set_size(handle, CURLOPT_POSTFIELDSIZE_LARGE, 0)
        _ = ccurl_set_string(handle, CURLOPT_COPYPOSTFIELDS, "")
        if method != "POST" { _ = ccurl_set_string(handle, CURLOPT_CUSTOMREQUEST, method) }
      case .none:
        _ = ccurl_set_string(handle, CURLOPT_CUSTOMREQUEST, method)
      case .bytes(let bytes):
        _ = ccurl_set_size(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(bytes.count))
        bytes.withUnsafeBytes { _ = ccurl_set_pointer(handle, CURLOPT_COPYPOSTFIELDS, $0.baseAddress) }
        if method != "POST" { _ = ccurl_set_string(handle, CURLOPT_CUSTOMREQUEST, method) }
      case .stream(_, let length):
        _ = ccurl_set_long(handle, CURLOPT_UPLOAD, 1)
        _ = ccurl_set_size(handle, CURLOPT_INFILESIZE_LARGE, length.map { curl_off_t($0) } ?? -1)
        _ = ccurl_set_string(handle, CURLOPT_CUSTOMREQUEST, method)
      }
    }

    private func configureHeaders(_ handle: UnsafeMutableRawPointer, _ transfer: CurlTransfer) {
      var list: UnsafeMutablePointer<curl_slist>?
      for (name, value) in transfer.headers where name != "content-length" && name != "transfer-encoding" {
        // A header without a value is written with a semicolon; with a colon it would be taken out.
        list = curl_slist_append(list, value.isEmpty ? "\(name);" : "\(name): \(value)")
      }
      // What libcurl adds by itself and nobody asked for.
      list = curl_slist_append(list, "Expect:")
      if transfer.headers["accept"] == nil { list = curl_slist_append(list, "Accept:") }
      if transfer.headers["content-type"] == nil { list = curl_slist_append(list, "Content-Type:") }
      transfer.headerList = list
      _ = ccurl_set_headers(handle, list)
    }
  }

  // Free functions: see ServerCallbacks.swift of the server for why.

  private func runCurlDriver(_ closure: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    guard let closure else { return nil }
    // A write to a connection that the server closed must be an error, not the process's end.
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, SIGPIPE)
    pthread_sigmask(SIG_BLOCK, &signals, nil)
    Unmanaged<CurlDriver>.fromOpaque(closure).takeRetainedValue().run()
    return nil
  }

  private func transfer(_ closure: UnsafeMutableRawPointer?) -> CurlTransfer? {
    closure.map { Unmanaged<CurlTransfer>.fromOpaque($0).takeUnretainedValue() }
  }

  private func takeCurlHeader(
    _ data: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ closure: UnsafeMutableRawPointer?
  ) -> Int {
    transfer(closure)?.takeHeader(UnsafeRawBufferPointer(start: data, count: size * count)) ?? 0
  }

  private func takeCurlBody(
    _ data: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ closure: UnsafeMutableRawPointer?
  ) -> Int {
    transfer(closure)?.takeBody(UnsafeRawBufferPointer(start: data, count: size * count)) ?? 0
  }

  private func giveCurlBody(
    _ data: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ closure: UnsafeMutableRawPointer?
  ) -> Int {
    transfer(closure)?.giveBody(UnsafeMutableRawBufferPointer(start: data, count: size * count))
      ?? Int(CURL_READFUNC_ABORT)
  }
#endif
