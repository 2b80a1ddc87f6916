import SalvorModel

/// What one principal may have on the server, as every store says it.
extension SalvorError {
  public static func remoteQuota(_ limits: Limits) -> SalvorError {
    SalvorError(
      .quota,
      "Your principal has \(limits.principalRemotesMax) remote databases on this server (principalRemotesMax). Ask the server's operator to delete those that are not used any more.",
      context: ["limit": "principalRemotesMax"])
  }

  public static func chunkQuota(_ limits: Limits) -> SalvorError {
    SalvorError(
      .quota, "The upload has more than \(limits.uploadChunksMax) chunks (uploadChunksMax). Send larger ones.",
      context: ["limit": "uploadChunksMax"])
  }

  public static func stagingQuota(_ limits: Limits) -> SalvorError {
    SalvorError(
      .quota,
      "Uploads of your principal that wait to be processed have \(limits.principalStagedBytesMax) bytes together (principalStagedBytesMax). Let another device end its upload first; what nobody continues is emptied by itself.",
      context: ["limit": "principalStagedBytesMax"], retryAfterMilliseconds: 30_000)
  }
}
