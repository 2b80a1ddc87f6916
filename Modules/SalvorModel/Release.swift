/// The version of Salvor: that of CHANGELOG.md, `-dev` before it is released.
public let salvorVersion = "0.1.0-dev"
