import SalvorModel

/// A device's database whose file may be encrypted with a key. A store without this has no key at all.
public protocol EncryptedClientStore: ClientStore {
  /// Encrypts the file with another key. No session runs meanwhile, in any process, and nobody else has the file open. One transaction: a
  /// crash leaves the old key. Copies that recoveries made before keep the old one.
  ///
  /// Throws `key-refused` where the file is not encrypted or the key is none, `session-in-use` and `storage-busy` where
  /// somebody else is at it. The old key stands then.
  func changeKey(to key: String) async throws
}
