import SalvorConfiguration
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The credential of `/admin/v1` where the configuration names none: in a file beside the database, made by the first
/// server that finds none, readable by its owner alone.
package enum AdministrationToken {
  package static func file(of database: String) -> String { database + ".admin-token" }

  /// A file that others than its owner may read, as a copy that was put back without its rights is, is replaced by a new
  /// token: the server starts, and who has read the old one has nothing.
  ///
  /// Errors: `configuration` where the file cannot be read or made.
  package static func ofFile(beside database: String, log: Log) throws -> String {
    let path = file(of: database)
    var rights = stat()
    if stat(path, &rights) == 0, rights.st_mode & 0o077 != 0 {
      guard unlink(path) == 0 else {
        throw refuse(path, "can be read by others, and cannot be replaced. Take that right away (chmod 600)")
      }
      log.warning(
        "The file of the administration token could be read by others. It holds a new token now.", ["file": path])
    }
    if !fileExists(path) {
      let token = "salvor_admin_" + hexadecimal(SystemRandom().bytes(32))
      do {
        try writeFile(path, token + "\n", mode: 0o600)
        return token
      } catch  where fileExists(path) {
        // Another server made it at the same time.
      } catch let error as SalvorError where error.code == .storageFull {
        throw error
      } catch {
        throw refuse(path, "cannot be made: \((error as? SalvorError)?.message ?? "\(error)")")
      }
    }
    guard let bytes = try? ConfigurationFile.read(path) else {
      throw refuse(path, "cannot be read. Give this process the right to")
    }
    let token = String(decoding: bytes, as: UTF8.self).filter { !$0.isWhitespace }
    guard token.utf8.count >= 32 else {
      throw refuse(path, "holds no token of at least 32 characters. Remove it: a new one is made")
    }
    return token
  }

  private static func refuse(_ path: String, _ why: String) -> SalvorError {
    SalvorError(
      .configuration, "The file of the administration token \(why); or set server.administration.token.",
      context: ["file": path])
  }
}
