import ClientWinsPolicy
import GzipCompression
import HTTPClientTransport
import HTTPServerTransport
import IdentityCompression
import KeepVersionsPolicy
import NoAuthentication
import ProgramPolicy
import SQLiteServerStore
import SalvorModuleKit
import ServerWinsPolicy
import TokenAuthentication
import WebhookValidator
import ZstdCompression

#if PostgreSQL
  import PostgreSQLServerStore
#endif

/// The modules of a server: the list that `import SalvorServer` brings.
public enum ServerModules {
  /// The SQLite store, the HTTP transport, gzip, zstd and identity, authentication, conflict policies, and the webhook with the
  /// transport that it asks by.
  public static var all: [ModuleFactory] {
    var list: [ModuleFactory] = [
      SQLiteServerStore.factory, GzipCompression.factory, IdentityCompression.factory, TokenAuthentication.factory,
      NoAuthentication.factory, ClientWinsPolicy.factory, ServerWinsPolicy.factory, KeepVersionsPolicy.factory,
      ProgramPolicy.factory,
      WebhookValidator.factory,
    ]
    #if PostgreSQL
      list.append(PostgreSQLServerStore.factory)
    #endif
    #if Zstd
      list.append(ZstdCompression.factory)
    #endif
    #if HTTPServer
      list.append(HTTPServerTransport.factory)
    #endif
    #if HTTPClient
      list.append(HTTPClientTransport.factory)
    #endif
    return list
  }
}
