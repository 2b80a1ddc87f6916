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
      context: ["limit": "uploadChunksMax"])
  }

  /// `quota`: the remotes of the principal would have more bytes in staging than `principalStagedBytesMax` allows. It
  /// is worth another try after 30 seconds.
  public static func stagingQuota(_ limits: Limits) -> SalvorError {
    SalvorError(
      .quota,
      "Uploads of your principal that wait to be processed have \(limits.principalStagedBytesMax) bytes together (principalStagedBytesMax). Let another device end its upload first; what nobody continues is emptied by itself.",
      context: ["limit": "principalStagedBytesMax"], retryAfterMilliseconds: 30_000)
  }
}
