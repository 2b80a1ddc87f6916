import SalvorModel

/// What one principal may have on the server, as every store says it.
extension SalvorError {
  /// `quota`: the principal has as many remote databases as `principalRemotesMax` allows; deleted ones do not count.
  public static func remoteQuota(_ limits: Limits) -> SalvorError {
    SalvorError(
      .quota,
      "Your principal has \(limits.principalRemotesMax) remote databases on this server (principalRemotesMax). Ask the server's operator to delete those that are not used any more.",
      context: ["limit": "principalRemotesMax"])
  }

  /// `quota`: the upload has more chunks than `uploadChunksMax` allows.
  public static func chunkQuota(_ limits: Limits) -> SalvorError {
    SalvorError(
      .quota, "The upload has more than \(limits.uploadChunksMax) chunks (uploadChunksMax). Send larger ones.",
      context: ["limit": "uploadChunksMax", "max": "\(limits.uploadChunksMax)"])
  }

  /// `quota`: the remotes of the principal would have more bytes in staging than `principalStagedBytesMax` allows. It
  /// is worth another try after 30 seconds.
  ///
  /// - Parameter others: the bytes of the principal's other remotes.
  public static func stagingQuota(_ limits: Limits, others: Int64) -> SalvorError {
    SalvorError(
      .quota,
      "Uploads of your principal that wait to be processed have \(limits.principalStagedBytesMax) bytes together (principalStagedBytesMax). Let another device end its upload first; what nobody continues is emptied by itself.",
      context: [
        "limit": "principalStagedBytesMax", "max": "\(limits.principalStagedBytesMax)", "others": "\(others)",
      ], retryAfterMilliseconds: 30_000)
  }

  /// `too-large`: the upload has more bytes than `uploadBytesMax` allows.
  public static func uploadTooLarge(_ limits: Limits) -> SalvorError {
    SalvorError(
      .tooLarge, "The upload is larger than \(limits.uploadBytesMax) bytes (uploadBytesMax). Send it in parts.",
      context: ["limit": "uploadBytesMax", "max": "\(limits.uploadBytesMax)"])
  }

  /// The server does not take another chunk of this upload: a smaller one, with the requests that it has taken, fits.
  public var isBeyondStaging: Bool {
    [.quota, .tooLarge].contains(code)
      && ["principalStagedBytesMax", "uploadChunksMax", "uploadBytesMax"].contains(context["limit"] ?? "")
  }
}
