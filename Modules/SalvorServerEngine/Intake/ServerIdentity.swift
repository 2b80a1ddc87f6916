import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

struct ServerIdentity: Sendable {
  var server: ServerID
  var incarnation: IncarnationID
}
