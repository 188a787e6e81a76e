//! Profiling, dumping and logging interfaces: there, and without effect.

use crate::accepted;

accepted!(
    MsprofGetHashId,
    MsprofRegisterCallback,
    MsprofReportAdditionalInfo,
    MsprofReportApi,
    MsprofReportCompactInfo,
    MsprofSysCycleTime,
    aclAppLog,
    aclmdlInitDump,
    aclmdlSetDump,
    aclmdlFinalizeDump,
    aclprofInit,
    aclprofFinalize,
    aclprofStart,
    aclprofStop,
    aclprofWarmup,
    aclprofSetConfig,
    aclprofDestroyConfig,
    aclopStartDumpArgs,
    aclopStopDumpArgs,
);
