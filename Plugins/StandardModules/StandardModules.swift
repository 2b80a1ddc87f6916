import ClientWinsPolicy
import CopyAndResubscribeRecovery
import DiscardUnsyncedChangesRecovery
import GzipCompression
import HTTPClientTransport
import HTTPServerTransport
import IdentityCompression
import KeepVersionsPolicy
import LoopbackTransport
import ManualRecovery
import MemoryStore
import NoAuthentication
import RecoverUnsyncedChangesRecovery
import RecreateRecovery
import SQLiteClientStore
import SQLiteServerStore
import SalvorModuleKit
import ServerWinsPolicy
import TokenAuthentication
import UploadThenRecreateRecovery
import WebhookValidator

/// The one list of what is built in (architecture, rule 5).
public enum StandardModules {
  /// - Parameter network: where the loopback transports of this process find each other.
  public static func all(network: LoopbackNetwork) -> [ModuleFactory] {
    var list: [ModuleFactory] = [
      SQLiteClientStore.factory, SQLiteServerStore.factory,
      MemoryClientStore.factory, MemoryServerStore.factory,
      network.clientFactory, network.serverFactory,
      GzipCompression.factory, IdentityCompression.factory,
      TokenAuthentication.factory, NoAuthentication.factory,
      RecreateRecovery.factory, CopyAndResubscribeRecovery.factory, UploadThenRecreateRecovery.factory,
      RecoverUnsyncedChangesRecovery.factory, RecoverUnsyncedChangesRecovery.orDiscardFactory,
      DiscardUnsyncedChangesRecovery.factory, ManualRecovery.factory,
      ClientWinsPolicy.factory, ServerWinsPolicy.factory, KeepVersionsPolicy.factory,
      WebhookValidator.factory,
    ]
    #if HTTPServer
      list.append(HTTPServerTransport.factory)
    #endif
    #if HTTPClient
      list.append(HTTPClientTransport.factory)
    #endif
    return list
  }

  public static var all: [ModuleFactory] { all(network: LoopbackNetwork()) }
}
