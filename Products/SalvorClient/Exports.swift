// What an application names, by name. Types that other modules have, too (`Table`, `Row` and `Column` of GRDB, `Operation` of
// Foundation, `Clock` of Swift, `Subscription` of Combine, …) are not among it: whoever needs one of them imports its module.
@_exported import ClientModules
@_exported import SalvorClientEngine
@_exported import SalvorClientHost
@_exported import func SalvorConfiguration.processEnvironment
@_exported import struct SalvorModel.Commit
@_exported import struct SalvorModel.CommitID
@_exported import enum SalvorModel.ErrorCode
@_exported import enum SalvorModel.HealMode
@_exported import typealias SalvorModel.Key
@_exported import struct SalvorModel.Limits
@_exported import class SalvorModel.LogContext
@_exported import enum SalvorModel.LogLevel
@_exported import struct SalvorModel.LogRecord
@_exported import struct SalvorModel.Principal
@_exported import protocol SalvorModel.RandomSource
@_exported import enum SalvorModel.RecoveryReason
@_exported import enum SalvorModel.RefusalReason
@_exported import struct SalvorModel.RemoteID
@_exported import struct SalvorModel.RequestID
@_exported import enum SalvorModel.RequestState
@_exported import struct SalvorModel.ResolvedSubscriptions
@_exported import struct SalvorModel.SalvorError
@_exported import struct SalvorModel.SequenceID
@_exported import struct SalvorModel.ServerID
@_exported import struct SalvorModel.SystemClock
@_exported import struct SalvorModel.SystemRandom
@_exported import struct SalvorModel.TraceContext
@_exported import protocol SalvorModel.TraceSink
@_exported import enum SalvorModel.Value
@_exported import let SalvorModel.salvorReleaseDate
@_exported import let SalvorModel.salvorVersion
@_exported import struct SalvorModuleKit.ModuleContext
@_exported import struct SalvorModuleKit.ModuleDescriptor
@_exported import struct SalvorModuleKit.ModuleFactory
@_exported import enum SalvorModuleKit.ModuleKind
@_exported import struct SalvorModuleKit.ModuleOption
@_exported import struct SalvorModuleKit.ModuleRegistry
@_exported import struct SalvorModuleKit.OptionReader
@_exported import struct SalvorRecovery.Incident
@_exported import enum SalvorRecovery.RecoveryDecision
@_exported import struct SalvorRecovery.RecoveryGuarantees
@_exported import enum SalvorRecovery.RecoveryStep
@_exported import protocol SalvorRecovery.RecoveryStrategy
@_exported import enum SalvorStorage.ApplicationWrite
@_exported import struct SalvorStorage.ApplyReport
@_exported import struct SalvorStorage.Backup
@_exported import struct SalvorStorage.ClientOpening
@_exported import struct SalvorStorage.ClientState
@_exported import struct SalvorStorage.ClientStatus
@_exported import protocol SalvorStorage.ClientStore
@_exported import struct SalvorStorage.DetachmentPlan
@_exported import struct SalvorStorage.DeviceSettings
@_exported import struct SalvorStorage.DownloadEnd
@_exported import struct SalvorStorage.GroupState
@_exported import struct SalvorStorage.NamedValue
@_exported import struct SalvorStorage.QueuedRequest
@_exported import struct SalvorStorage.RecoveryCounts
@_exported import struct SalvorStorage.RecoveryItem
@_exported import struct SalvorStorage.RecoveryReport
@_exported import struct SalvorStorage.RecoveryStatus
@_exported import enum SalvorStorage.RemovalCause
@_exported import struct SalvorStorage.RemovalReport
@_exported import struct SalvorStorage.RemovedRequest
@_exported import enum SalvorStorage.RequestRemoval
@_exported import struct SalvorStorage.RetriedRequest
@_exported import struct SalvorStorage.RetryReport
@_exported import struct SalvorStorage.RowDifference
@_exported import struct SalvorStorage.RowExplanation
@_exported import struct SalvorStorage.StoreNote
@_exported import struct SalvorStorage.SyncConfig
@_exported import struct SalvorStorage.UploadStatus
@_exported import protocol SalvorTransport.ClientTransport
@_exported import protocol SalvorTransport.Compression
@_exported import struct SalvorTransport.Credentials
@_exported import typealias SalvorTransport.CredentialsProvider

#if canImport(Darwin)
  @_exported import SalvorFoundation
#endif
