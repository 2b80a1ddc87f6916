import SalvorModel
import SalvorStorage

extension StoreComparison {
  static let membershipSettings: [Setting] = [
    Setting(schema: ContractSchemas.members(), principals: people),
    Setting(schema: ContractSchemas.members(handover: true), principals: people),
    Setting(schema: ContractSchemas.members(handover: true, regions: true), principals: peopleOfRegions),
  ]

  static let subscriptionSettings: [Setting] = [
    Setting(schema: ContractSchemas.inspections, principals: peopleOfRegions),
    Setting(schema: ContractSchemas.places, principals: peopleOfRegions),
    Setting(schema: ContractSchemas.inspections(handover: true), principals: peopleOfRegions),
    Setting(
      schema: ContractSchemas.places.settled(by: ContractPolicies.keepVersions),
      principals: ["a", "b"].map { Principal(name: $0) }),
    Setting(schema: ContractSchemas.members(handover: true, regions: true), principals: peopleOfRegions),
    Setting(schema: ContractSchemas.members(handover: true, regions: true), principals: people),
  ]

  private static let people = ["a", "b", "c"].map { Principal(name: $0) }

  private static let peopleOfRegions = [
    Principal(name: "a", parameters: ["region": ["EU"]]), Principal(name: "b", parameters: ["region": ["US"]]),
    Principal(name: "c"),
  ]
}
