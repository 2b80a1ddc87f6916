// One import for who writes a module: the seams and what they speak of.
@_exported import SalvorModel
@_exported import SalvorModuleKit
@_exported import SalvorRecovery
@_exported import SalvorStorage
@_exported import SalvorTransport
@_exported import SalvorWire
