import CopyAndResubscribeRecovery
import DiscardUnsyncedChangesRecovery
import GzipCompression
import HTTPClientTransport
import IdentityCompression
import ManualRecovery
import ProgramRecovery
import RecoverUnsyncedChangesRecovery
import RecreateRecovery
import SQLiteClientStore
import SalvorModuleKit
import UploadThenRecreateRecovery
import ZstdCompression

/// The modules of a device: the list that `import SalvorClient` brings.
public enum ClientModules {
  /// The SQLite store, the HTTP transport, gzip, zstd and identity, and the recovery strategies.
  public static var all: [ModuleFactory] {
    var list: [ModuleFactory] = [
      SQLiteClientStore.factory, GzipCompression.factory, IdentityCompression.factory, RecreateRecovery.factory,
      CopyAndResubscribeRecovery.factory, UploadThenRecreateRecovery.factory, RecoverUnsyncedChangesRecovery.factory,
      RecoverUnsyncedChangesRecovery.orDiscardFactory, DiscardUnsyncedChangesRecovery.factory, ManualRecovery.factory,
      ProgramRecovery.factory,
    ]
    #if Zstd
      list.append(ZstdCompression.factory)
    #endif
    #if HTTPClient
      list.append(HTTPClientTransport.factory)
    #endif
    return list
  }
}
